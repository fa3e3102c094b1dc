//! The options that select requests, the same for every command that reads a capture.

use clap::Args;

use super::parse_time;
use crate::model::Kind;
use crate::report::{EndPattern, Pattern, RequestFilter, StatusPattern};
use crate::request_filter::parse_kind;

/// Which requests.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters (options given several times: any value matches)")]
pub struct FilterArgs {
    /// Only requests of this kind (exec, pipe, shm, unix, tcp, udp, http1, http2, oncrpc, resp, stdio or
    /// process)
    #[arg(long, value_parser = parse_kind)]
    pub kind: Vec<Kind>,
    /// Only requests of this method, e.g. 'GET /users/*'; `*` matches any characters
    #[arg(long)]
    pub method: Vec<Pattern>,
    /// Only requests that ended so: a number, a class such as 5xx, or for processes 'exit 1',
    /// 'signal 9'
    #[arg(long)]
    pub status: Vec<StatusPattern>,
    /// Only requests of this client: a thread's name (`*` matches any characters), NAME/TID, a
    /// process's or a thread's number
    #[arg(long, value_name = "THREAD")]
    pub client: Vec<EndPattern>,
    /// Only requests that this thread or process served, given as for --client
    #[arg(long, value_name = "THREAD")]
    pub server: Vec<EndPattern>,
    /// Only requests that started at this time of the capture or later, e.g. 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<u64>,
    /// Only requests that started before this time of the capture
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<u64>,
    /// Only requests that took at least this long, e.g. 150us
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub min: Option<u64>,
    /// Only requests that took at most this long
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub max: Option<u64>,
}

impl From<FilterArgs> for RequestFilter {
    fn from(args: FilterArgs) -> RequestFilter {
        RequestFilter {
            ids: None,
            kinds: args.kind,
            methods: args.method,
            statuses: args.status,
            clients: args.client,
            servers: args.server,
            from_ns: args.from,
            to_ns: args.to,
            min_latency_ns: args.min,
            max_latency_ns: args.max,
        }
    }
}
