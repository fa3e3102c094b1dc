//! Writes the packets of a trace one by one. A text is written once and then referred to by number.

use std::io::Write;

use anyhow::Result;
use prost::Message;
use rustc_hash::FxHashMap;

use super::proto::{
    ClockSnapshot, CounterDescriptor, DebugAnnotation, EventType, Interned, InternedData,
    TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent, MONOTONIC, NEEDS_STATE,
    STATE_CLEARED, UNIT_COUNT,
};

/// Limit in bytes for remembered texts. Beyond it, all texts are forgotten and written again.
const REMEMBERED_BYTES: usize = 8 << 20;
/// Memory that a remembered text takes besides its bytes.
const EACH_BYTES: usize = 64;
/// Key of `packet`, the only field of a trace: field number 1, length-delimited.
const PACKET: u8 = 1 << 3 | 2;
/// All packets belong to one sequence.
const SEQUENCE: u32 = 1;

/// The number of a track; 0 is none of our tracks.
pub type Track = u64;

/// A property of a slice besides its name.
pub struct Note<'a> {
    pub name: &'static str,
    pub value: Value<'a>,
}

pub enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Signed(i64),
    Flag(bool),
}

/// A list of notes; unknown values are left out.
#[derive(Default)]
pub struct Notes<'a>(Vec<Note<'a>>);

impl<'a> Notes<'a> {
    pub fn text(&mut self, name: &'static str, value: impl Into<Option<&'a str>>) {
        self.push(name, value.into().map(Value::Text));
    }

    pub fn number(&mut self, name: &'static str, value: impl Into<Option<u64>>) {
        self.push(name, value.into().map(Value::Number));
    }

    pub fn signed(&mut self, name: &'static str, value: Option<i32>) {
        self.push(name, value.map(|value| Value::Signed(value.into())));
    }

    pub fn flag(&mut self, name: &'static str, value: bool) {
        self.push(name, Some(Value::Flag(value)));
    }

    fn push(&mut self, name: &'static str, value: Option<Value<'a>>) {
        self.0.extend(value.map(|value| Note { name, value }));
    }
}

/// Arrows at a slice: those that leave it, and those that end at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    pub out: Vec<u64>,
    pub into: Vec<u64>,
}

/// Numbers of the texts of one sort.
#[derive(Default)]
struct Table(FxHashMap<Box<str>, u64>);

impl Table {
    /// Returns the text's number; a new text is added to `fresh`.
    fn number(&mut self, text: &str, fresh: &mut Vec<Interned>, held: &mut usize) -> u64 {
        if let Some(number) = self.0.get(text) {
            return *number;
        }
        let number = self.0.len() as u64 + 1;
        *held += text.len() + EACH_BYTES;
        self.0.insert(text.into(), number);
        fresh.push(Interned { iid: Some(number), text: Some(text.to_owned()) });
        number
    }
}

#[derive(Default)]
struct Tables {
    categories: Table,
    names: Table,
    keys: Table,
    values: Table,
    held_bytes: usize,
}

pub struct Packets<'w> {
    out: &'w mut dyn Write,
    buffer: Vec<u8>,
    tables: Tables,
    fresh: InternedData,
    /// The next packet is the first, or the first since all texts were forgotten.
    cleared: bool,
    tracks: Track,
}

impl<'w> Packets<'w> {
    pub fn new(out: &'w mut dyn Write) -> Packets<'w> {
        Packets {
            out,
            buffer: Vec::new(),
            tables: Tables::default(),
            fresh: InternedData::default(),
            cleared: true,
            tracks: 0,
        }
    }

    pub fn clocks(&mut self, clocks: ClockSnapshot) -> Result<()> {
        self.write(TracePacket { clock_snapshot: Some(clocks), ..TracePacket::default() })
    }

    /// Writes a new track as `descriptor` describes it, with a new number.
    pub fn track(&mut self, descriptor: TrackDescriptor) -> Result<Track> {
        self.tracks += 1;
        let descriptor = TrackDescriptor { uuid: Some(self.tracks), ..descriptor };
        self.write(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })?;
        Ok(self.tracks)
    }

    /// Writes a new track with this name, below `parent` if given.
    pub fn named(&mut self, name: &str, parent: Option<Track>) -> Result<Track> {
        let name = Some(name.to_owned());
        self.track(TrackDescriptor { name, parent_uuid: parent, ..TrackDescriptor::default() })
    }

    /// Writes a new counter track.
    pub fn counter(&mut self, name: &str, parent: Track) -> Result<Track> {
        self.track(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            counter: Some(CounterDescriptor { unit: Some(UNIT_COUNT) }),
            ..TrackDescriptor::default()
        })
    }

    pub fn begin(
        &mut self,
        at_ns: u64,
        track: Track,
        name: &str,
        category: &str,
        notes: Notes,
        flows: Flows,
    ) -> Result<()> {
        if self.tables.held_bytes > REMEMBERED_BYTES {
            self.tables = Tables::default();
            self.cleared = true;
        }
        let Packets { tables, fresh, .. } = self;
        let held = &mut tables.held_bytes;
        let category = tables.categories.number(category, &mut fresh.event_categories, held);
        let name = tables.names.number(name, &mut fresh.event_names, held);
        let debug_annotations = notes.0.into_iter().map(|note| {
            let keys = &mut fresh.debug_annotation_names;
            let mut told = DebugAnnotation {
                name_iid: Some(tables.keys.number(note.name, keys, held)),
                ..DebugAnnotation::default()
            };
            match note.value {
                Value::Text(text) => {
                    let values = &mut fresh.debug_annotation_string_values;
                    told.string_value_iid = Some(tables.values.number(text, values, held));
                }
                Value::Number(number) => told.uint_value = Some(number),
                Value::Signed(number) => told.int_value = Some(number),
                Value::Flag(flag) => told.bool_value = Some(flag),
            }
            told
        });
        let event = TrackEvent {
            category_iids: vec![category],
            debug_annotations: debug_annotations.collect(),
            name_iid: Some(name),
            flow_ids: flows.out,
            terminating_flow_ids: flows.into,
            ..TrackEvent::default()
        };
        self.event(EventType::SliceBegin, at_ns, track, event)
    }

    pub fn end(&mut self, at_ns: u64, track: Track) -> Result<()> {
        self.event(EventType::SliceEnd, at_ns, track, TrackEvent::default())
    }

    pub fn count(&mut self, at_ns: u64, track: Track, value: i64) -> Result<()> {
        let event = TrackEvent { counter_value: Some(value), ..TrackEvent::default() };
        self.event(EventType::Counter, at_ns, track, event)
    }

    fn event(&mut self, of: EventType, at_ns: u64, track: Track, event: TrackEvent) -> Result<()> {
        let event = TrackEvent { r#type: Some(of.into()), track_uuid: Some(track), ..event };
        let (timestamp, track_event) = (Some(at_ns), Some(event));
        self.write(TracePacket { timestamp, track_event, ..TracePacket::default() })
    }

    fn write(&mut self, packet: TracePacket) -> Result<()> {
        let fresh = std::mem::take(&mut self.fresh);
        let cleared = std::mem::take(&mut self.cleared);
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(if cleared { STATE_CLEARED | NEEDS_STATE } else { NEEDS_STATE }),
            trace_packet_defaults: cleared
                .then_some(TracePacketDefaults { timestamp_clock_id: Some(MONOTONIC) }),
            interned_data: (fresh != InternedData::default()).then_some(fresh),
            ..packet
        };
        self.buffer.clear();
        self.buffer.push(PACKET);
        packet.encode_length_delimited(&mut self.buffer)?;
        Ok(self.out.write_all(&self.buffer)?)
    }
}
