//! Percentile bands of a group of requests.

use rpcprobe_model::Request;
use rpcprobe_report::values::Values;
use rpcprobe_report::FEWEST;

/// Complete requests of a group by their latency. The bounds are the group's own percentiles: of the requests of
/// one method, for a method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Band {
    /// All requests
    #[default]
    #[value(name = "all")]
    All,
    /// Below the median
    #[value(name = "p0-50")]
    P0To50,
    /// From the median, below p90
    #[value(name = "p50-90")]
    P50To90,
    /// From p90, below p99
    #[value(name = "p90-99")]
    P90To99,
    /// From p99: the tail of a report
    #[value(name = "top1")]
    Top1,
}

impl Band {
    pub const EACH: [Band; 4] = [Band::P0To50, Band::P50To90, Band::P90To99, Band::Top1];
    pub const WITH_ALL: [Band; 5] =
        [Band::All, Band::P0To50, Band::P50To90, Band::P90To99, Band::Top1];

    /// The stable name of the band.
    pub fn name(self) -> &'static str {
        match self {
            Band::All => "all",
            Band::P0To50 => "p0-50",
            Band::P50To90 => "p50-90",
            Band::P90To99 => "p90-99",
            Band::Top1 => "top1",
        }
    }

    /// The name shown to people.
    pub fn shown(self) -> &'static str {
        match self {
            Band::All => "all",
            Band::P0To50 => "p0–50",
            Band::P50To90 => "p50–90",
            Band::P90To99 => "p90–99",
            Band::Top1 => "top 1 %",
        }
    }

    /// Whether requests of the band `other`, one of [`Band::EACH`], belong to this band.
    pub fn holds(self, other: Band) -> bool {
        self == Band::All || self == other
    }
}

/// Latencies at which bands begin. `None` if there are too few requests: then all requests are in the first band, and
/// only [`Band::All`] is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds(Option<[u64; 3]>);

impl Bounds {
    /// Computes the bounds of `count` latencies; `values` holds those above 0.
    pub fn of(values: &mut Values, count: u64) -> Bounds {
        let bounds = |values: &mut Values| [50, 90, 99].map(|p| values.rank_bounds(count, p).0);
        Bounds((count >= FEWEST).then(|| bounds(values)))
    }

    pub fn are_known(&self) -> bool {
        self.0.is_some()
    }

    pub fn band(&self, request: &Request) -> Band {
        let Some(bounds) = self.0 else { return Band::P0To50 };
        Band::EACH[bounds.iter().filter(|from_ns| request.latency_ns >= **from_ns).count()]
    }

    /// Lower bound (inclusive) and upper bound (exclusive) of the latencies in a band.
    pub fn latencies(&self, band: Band) -> (Option<u64>, Option<u64>) {
        let Some([p50, p90, p99]) = self.0 else { return (None, None) };
        match band {
            Band::All => (None, None),
            Band::P0To50 => (None, Some(p50)),
            Band::P50To90 => (Some(p50), Some(p90)),
            Band::P90To99 => (Some(p90), Some(p99)),
            Band::Top1 => (Some(p99), None),
        }
    }
}
