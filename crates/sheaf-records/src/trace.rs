//! Records of `trace`.
use serde::Serialize;
use serde_json::Value;

/// trace report. The report has a version of its own.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "trace_report")]
pub struct TraceReport {
    /// The fields of ReportData (crates/sheaf-trace/src/report/data.rs).
    #[cfg_attr(test, schemars(schema_with = "report_schema"))]
    pub report: Value,
}

/// trace replay.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "trace_replay")]
pub struct TraceReplay {
    pub operations: Vec<ReplayedOperation>,
    pub skipped: Vec<SkippedOperations>,
    pub lost: u64,
    pub threads: u64,
    pub files_made: u64,
    pub took_ns: u64,
}

/// The calls of one operation.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct ReplayedOperation {
    pub op: String,
    pub count: u64,
    pub differed: u64,
    pub bytes_recorded: u64,
    pub bytes_replayed: u64,
    pub recorded_ns: u64,
    pub replayed_ns: u64,
}

/// The calls of one operation that were not replayed for the same reason.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct SkippedOperations {
    pub op: String,
    pub why: String,
    pub count: u64,
}

/// trace recover --list: where a recording keeps operations that are not stored yet.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "trace_buffers")]
pub struct TraceBuffers {
    pub buffers: String,
    /// The trace that the operations are for, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The memory that they take.
    pub bytes: u64,
    pub state: TraceBuffersState,
    /// Processes that record there.
    pub writers: Vec<TraceProcess>,
    /// Operations that are stored nowhere else, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
}

/// Whether a recorder takes the operations, processes record without one, or nobody does either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, schemars(inline))]
pub enum TraceBuffersState {
    Taken,
    Written,
    Left,
}

/// A process that records.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct TraceProcess {
    pub pid: u32,
    pub program: String,
}

/// trace diff: what two traces spend their time on, by kinds of I/O, operations and files.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "trace_diff")]
pub struct TraceDiff {
    pub kinds: Vec<TraceDiffRow>,
    pub operations: Vec<TraceDiffRow>,
    /// Those that the reports of the traces list.
    pub files: Vec<TraceDiffRow>,
}

/// The same thing in two traces. Times are of all threads together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct TraceDiffRow {
    pub name: String,
    pub count_before: u64,
    pub count_after: u64,
    pub bytes_before: u128,
    pub bytes_after: u128,
    pub time_ns_before: u128,
    pub time_ns_after: u128,
}

/// trace top: the operations of the last interval, once for each round.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "trace_top")]
pub struct TraceTop {
    pub by: TopBy,
    pub last_ms: u64,
    /// The number of recorded programs.
    pub programs: u64,
    pub total: TraceSums,
    /// Operations without sums of their own.
    pub others: TraceSums,
    pub sums: Vec<TraceSums>,
    /// Hosts that did not answer, and the reason.
    pub missing: Vec<String>,
}

/// The key of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, schemars(inline))]
pub enum TopBy {
    File,
    Program,
    Operation,
    Host,
}

/// Sums of operations, without those within others of a higher layer. Times are in ns, of all
/// threads together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename = "trace_sums")]
pub struct TraceSums {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub operations: u64,
    pub failed: u64,
    pub lost: u64,
    pub bytes_read: u128,
    pub bytes_written: u128,
    pub time_ns: u128,
    pub metadata_ns: u128,
    pub longest_ns: u64,
}

/// The part of the report on which programs rely.
#[cfg(test)]
fn report_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let count = serde_json::json!({ "type": "integer", "minimum": 0 });
    schemars::json_schema!({
        "type": "object",
        "required": ["version", "rows", "totals", "lost", "findings", "files", "operations", "notes"],
        "additionalProperties": true,
        "properties": {
            "version": count,
            "rows": count,
            "removed": {
                "description": "Operations that were stored and then removed (trace serve --keep). They are in no sum.",
                "type": "object",
                "required": ["parts", "operations", "lost", "until_ns", "kept_from"],
                "additionalProperties": false,
                "properties": {
                    "parts": count,
                    "operations": count,
                    "lost": count,
                    "until_ns": { "type": "integer" },
                    "kept_from": count,
                },
            },
        },
    })
}
