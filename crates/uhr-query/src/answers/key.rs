//! What a row stands for.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use uhr_model::{Dimension, Interrupt};

/// One value of a dimension.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum KeyValue {
    /// Not known.
    Unknown,
    /// A name, or a marker in brackets such as `[too short to sample]`.
    Text(String),
    /// A line.
    Number(u64),
    /// A time: seconds from the start of the recording.
    Seconds(f64),
    /// A process.
    Process {
        /// Its name.
        name: String,
        /// Its pid, in the namespace that uhr ran in.
        pid: u32,
        /// Its pid in its own namespace, where that differs.
        #[serde(skip_serializing_if = "Option::is_none")]
        inner_pid: Option<u32>,
        /// Seconds from the start of the recording to its own, where the recording holds several of this pid.
        #[serde(skip_serializing_if = "Option::is_none")]
        start_s: Option<f64>,
    },
    /// A thread.
    Thread {
        /// Its name.
        name: String,
        /// Its tid.
        tid: u32,
        /// Its process.
        pid: u32,
        /// Seconds from the start of the recording to its own, where the recording holds several of this tid.
        #[serde(skip_serializing_if = "Option::is_none")]
        start_s: Option<f64>,
    },
    /// A thread that ended waits and was not recorded itself.
    Waker {
        /// Its name, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its tid.
        tid: u32,
        /// Its process, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    },
    /// An interrupt that ended waits.
    Interrupt {
        /// Its kind.
        interrupt: &'static str,
    },
}

impl fmt::Display for KeyValue {
    /// In one phrase, as text output shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("[unknown]"),
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Seconds(seconds) => write!(f, "{seconds} s"),
            Self::Process { name, pid, .. } => write!(f, "{name} ({pid})"),
            Self::Thread { name, tid, pid, .. } if tid == pid => write!(f, "{name} ({tid})"),
            Self::Thread { name, tid, pid, .. } => write!(f, "{name} ({tid} of {pid})"),
            Self::Waker { name, tid, pid } => {
                let name = name.as_deref().unwrap_or("[no name]");
                match pid {
                    Some(pid) if pid != tid => write!(f, "{name} ({tid} of {pid})"),
                    _ => write!(f, "{name} ({tid})"),
                }
            }
            Self::Interrupt { interrupt } => write!(f, "[interrupt: {interrupt}]"),
        }
    }
}

/// What a row stands for: a value for each dimension that was asked for, in the order of the request. A function comes
/// with its module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Key(pub Vec<(Dimension, KeyValue)>);

impl Key {
    /// The value of a dimension, if it is part of the key.
    pub fn get(&self, dimension: Dimension) -> Option<&KeyValue> {
        self.0.iter().find(|(of, _)| *of == dimension).map(|(_, value)| value)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (dimension, value) in &self.0 {
            map.serialize_entry(dimension.name(), value)?;
        }
        map.end()
    }
}

impl JsonSchema for Key {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = json_schema!({ "type": ["string", "null"], "description": "null where unknown" });
        let mut properties = serde_json::Map::new();
        for dimension in Dimension::ALL {
            let schema = match dimension {
                Dimension::Process => json_schema!({
                    "description": MARKER,
                    "type": ["object", "string"],
                    "properties": {
                        "name": { "type": "string" },
                        "pid": { "type": "integer", "minimum": 0 },
                        "inner_pid": { "type": "integer", "minimum": 0 },
                        "start_s": { "type": "number" },
                    },
                    "required": ["name", "pid"],
                    "additionalProperties": false,
                }),
                Dimension::Thread => thread(),
                Dimension::Waker => waker(),
                Dimension::Cpu => json_schema!({
                    "description": MARKER,
                    "type": ["integer", "string"],
                    "minimum": 0,
                }),
                Dimension::Line => json_schema!({
                    "description": format!("null where unknown, or {MARKER}"),
                    "type": ["integer", "null", "string"],
                    "minimum": 0,
                }),
                Dimension::Time => json_schema!({
                    "description": format!("seconds from the start of the recording, or {MARKER}"),
                    "type": ["number", "string"],
                }),
                _ => text.clone(),
            };
            properties.insert(dimension.name().to_owned(), schema.to_value());
        }
        json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

/// What stands for what a row is not about.
const MARKER: &str =
    "a marker in brackets, such as [too short to sample], where the row is about no such thing";

fn thread() -> Schema {
    json_schema!({
        "description": MARKER,
        "type": ["object", "string"],
        "properties": {
            "name": { "type": "string" },
            "tid": { "type": "integer", "minimum": 0 },
            "pid": { "type": "integer", "minimum": 0 },
            "start_s": { "type": "number" },
        },
        "required": ["name", "tid", "pid"],
        "additionalProperties": false,
    })
}

fn waker() -> Schema {
    json_schema!({
        "description": format!("a thread, or {{\"interrupt\": KIND}}; null where it was not seen; or {MARKER}"),
        "type": ["object", "null", "string"],
        "properties": {
            "name": { "type": "string" },
            "tid": { "type": "integer", "minimum": 0 },
            "pid": { "type": "integer", "minimum": 0 },
            "start_s": { "type": "number" },
            "interrupt": { "enum": Interrupt::ALL.iter().map(|one| one.name()).collect::<Vec<_>>() },
        },
        "additionalProperties": false,
    })
}

/// The schema of a thread outside of a key.
pub(super) struct ThreadSchema;

impl JsonSchema for ThreadSchema {
    fn schema_name() -> Cow<'static, str> {
        "Thread".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        thread()
    }
}

/// The schema of what ended a wait, outside of a key.
pub(super) struct WakerSchema;

impl JsonSchema for WakerSchema {
    fn schema_name() -> Cow<'static, str> {
        "Waker".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        waker()
    }
}
