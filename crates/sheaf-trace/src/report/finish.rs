//! How sums become data.
use super::*;
use sheaf_log::command_line;

impl TraceReport {
    /// What the rows say.
    #[must_use]
    pub fn finish(mut self, names: &TraceNames) -> ReportData {
        let mut data = std::mem::take(&mut self.data);
        let text = |number: u32| escaped(names.text(number));
        data.lost.biggest = std::mem::take(&mut self.lost)
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((count, from_ns, to_ns, host, pid))| LostRange {
                count,
                from_ns,
                to_ns,
                host: text(host),
                pid,
            })
            .collect();
        data.lost.count = data.lost.count.max(self.known_lost);
        data.slowest = slowest(std::mem::take(&mut self.slowest), names);
        data.slowest_streams = slowest(std::mem::take(&mut self.slowest_streams), names);
        data.operations = self.operations(names);
        data.layers = self.layers(names);
        data.failures = self.failures(names);
        data.read_sizes = self.read_sizes.buckets();
        data.write_sizes = self.write_sizes.buckets();
        self.fill_processes(&mut data, names);
        self.fill_files(&mut data, names);
        if self.mapped.0 > 0 {
            let (count, bytes) = (self.mapped.0, units::size(self.mapped.1));
            data.notes.push(format!(
                "Files were mapped into memory {count} times, {bytes} of them: what is read and written there is \
                 not seen."
            ));
        }
        data.findings = findings::find(&data);
        self.cut(&mut data);
        data.heat = self.heat(names);
        data
    }

    fn layer(&self, layer: u8, names: &TraceNames) -> String {
        if usize::from(layer) + 1 == LAYERS_MAX {
            return "(other layers)".to_owned();
        }
        escaped(names.text(self.layers[usize::from(layer)]))
    }

    /// The names of the operations by their places.
    fn op_names(&self, names: &TraceNames) -> Vec<(String, String)> {
        let mut of = vec![(String::new(), String::new()); self.ops.len()];
        for (&(layer, op), &place) in &self.op_places {
            let is_other = layer == u32::MAX;
            of[place as usize] = if is_other {
                ("(other layers)".to_owned(), "(other operations)".to_owned())
            } else {
                (self.layer(self.ops[place as usize].layer, names), escaped(names.text(op)))
            };
        }
        of
    }

    fn operations(&self, names: &TraceNames) -> Vec<OperationData> {
        let of = self.ops.iter().zip(self.op_names(names));
        let mut operations: Vec<OperationData> = of
            .filter(|(op, _)| !op.is_lost)
            .map(|(op, (layer, name))| {
                let mut sums = op.sums[0];
                sums.merge(&op.sums[1]);
                let class = if op.is_of_sockets { OpClass::Stream } else { op.class };
                let nested = op.sums[1].count;
                let durations = op.durations.buckets();
                OperationData { layer, op: name, class, sums, nested, durations }
            })
            .collect();
        operations.sort_by(|a, b| {
            let key = |op: &OperationData| (op.sums.time_ns, op.sums.count);
            key(b).cmp(&key(a)).then_with(|| (&a.layer, &a.op).cmp(&(&b.layer, &b.op)))
        });
        operations
    }

    fn layers(&self, names: &TraceNames) -> Vec<LayerData> {
        let mut layers: BTreeMap<u8, LayerData> = BTreeMap::new();
        for op in self.ops.iter().filter(|op| !op.is_lost) {
            let layer = layers.entry(op.layer).or_default();
            layer.layer = self.layer(op.layer, names);
            layer.outermost.merge(&op.sums[0]);
            layer.nested.merge(&op.sums[1]);
            let bytes = op.sums[0].bytes + op.sums[1].bytes;
            match op.class {
                OpClass::Read => layer.read_bytes += bytes,
                OpClass::Write => layer.written_bytes += bytes,
                OpClass::Copy => {
                    layer.read_bytes += bytes;
                    layer.written_bytes += bytes;
                }
                _ => {}
            }
        }
        let mut layers: Vec<LayerData> = layers.into_values().collect();
        layers.sort_by(|a, b| a.layer.cmp(&b.layer));
        layers
    }

    fn failures(&self, names: &TraceNames) -> Vec<FailureData> {
        let ops = self.op_names(names);
        let of = |errno: i32| match Errno(errno).name() {
            Some(name) => name.to_owned(),
            None if errno == 0 => "(other reasons)".to_owned(),
            None => format!("errno {errno}"),
        };
        let mut failures: Vec<FailureData> = self
            .failures
            .iter()
            .map(|(&(op, errno), entry)| FailureData {
                layer: ops[op as usize].0.clone(),
                op: ops[op as usize].1.clone(),
                errno,
                name: of(errno),
                count: entry.count,
                time_ns: entry.time_ns,
                examples: examples(entry).map(|at| escaped(names.text(at))).collect(),
            })
            .collect();
        failures.sort_by(|a, b| {
            let key =
                |failure: &FailureData| (failure.layer.clone(), failure.op.clone(), failure.errno);
            b.count.cmp(&a.count).then_with(|| key(a).cmp(&key(b)))
        });
        failures
    }

    fn fill_processes(&self, data: &mut ReportData, names: &TraceNames) {
        let text = |number: u32| escaped(names.text(number));
        let hosts = self.hosts.iter().map(|(host, processes, sums)| HostData {
            host: text(*host),
            processes: *processes,
            reads: sums.reads,
            writes: sums.writes,
            other: sums.other,
            streams: sums.streams,
        });
        data.hosts = hosts.collect();
        data.hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let command = |number: u32| escaped(&command_line(names.text(number)));
        let of = self.processes.iter();
        let processes = of.map(|((host, pid, words), sums, first_ns)| ProcessData {
            host: text(*host),
            pid: *pid,
            command: command(*words),
            first_ns: *first_ns,
            reads: sums.reads,
            writes: sums.writes,
            other: sums.other,
            streams: sums.streams,
        });
        data.processes = processes.collect();
        data.processes.sort_by(|a, b| {
            let key = |process: &ProcessData| (process.host.clone(), process.pid);
            b.time_ns().cmp(&a.time_ns()).then_with(|| key(a).cmp(&key(b)))
        });
        data.processes_total = self.pids.len() as u64;
        data.programs_total = self.processes.len() as u64;
        data.processes_beyond = self.processes_beyond;
        if self.processes_beyond.count > 0 {
            data.notes.push(format!(
                "There are more than {} processes: {} operations of the others are counted \
                 together, and how they access files is not classified.",
                self.options.processes_max, self.processes_beyond.count
            ));
        }
    }

    fn fill_files(&self, data: &mut ReportData, names: &TraceNames) {
        let (files, beyond) = self.files.finish(names, |layer| self.layer(layer, names));
        data.files = files;
        data.files_beyond = beyond;
        data.files_total = data.files.len() as u64 + data.files_beyond.folded;
        if data.files_beyond.reads.count
            + data.files_beyond.other.count
            + data.files_beyond.writes.count
            > 0
        {
            data.notes.push(format!(
                "There were more than {} files at once: {} of those with the fewest \
                 operations and the least time are counted together.",
                self.options.files_max, data.files_beyond.folded
            ));
        }
        if self.files.streams_beyond {
            data.notes.push(format!(
                "There are more than {} pairs of a file and a process: the accesses of the \
                 others are not classified, and the numbers of processes that share a file \
                 are too low.",
                self.options.streams_max
            ));
        }
        let (directories, has_others) = self.files.directories();
        data.directories = directories;
        if has_others {
            data.notes.push(format!(
                "There are more than {} directories: the others are counted together.",
                self.options.directories_max
            ));
        }
    }

    /// Leaves what is listed.
    fn cut(&self, data: &mut ReportData) {
        let keep = self.options.files_listed_max.min(data.files.len());
        for file in data.files.drain(keep..) {
            data.files_beyond.add(&file);
        }
        let keep = self.options.processes_listed_max.min(data.processes.len());
        for process in data.processes.drain(keep..) {
            for sums in [&process.reads, &process.writes, &process.other, &process.streams] {
                data.processes_beyond.merge(sums);
            }
        }
        let keep = self.options.directories_listed_max.min(data.directories.len());
        data.directories_beyond = data.directories.drain(keep..).count() as u64;
    }

    fn heat(self, names: &TraceNames) -> HeatData {
        let text = |number: u32| escaped(names.text(number));
        let by_process = !self.process_heat.is_beyond();
        let (heat, by) =
            if by_process { (self.process_heat, "process") } else { (self.host_heat, "host") };
        let (first_ns, bin_ns, mut rows) = heat.finish(|row| match row {
            Some(row) if by_process => match self.processes.get(row as usize) {
                Some(((host, pid, _), ..)) => format!("{} {pid}", text(*host)),
                None => "(other processes)".to_owned(),
            },
            Some(row) => text(self.hosts[row as usize].0),
            None => "(other hosts)".to_owned(),
        });
        rows.sort_by(|a, b| a.label.cmp(&b.label));
        HeatData { by: by.to_owned(), first_ns, bin_ns, rows }
    }
}

/// Files of the directories with the most failures, one each.
fn examples(entry: &FailureEntry) -> impl Iterator<Item = u32> {
    let mut examples = entry.examples.clone();
    examples.sort_by_key(|(_, count)| Reverse(*count));
    examples.into_iter().take(FAILURE_EXAMPLES).map(|(path, _)| path)
}

/// The slowest of some, the slowest first.
fn slowest(rows: SlowRows, names: &TraceNames) -> Vec<SlowOperation> {
    let text = |number: u32| escaped(names.text(number));
    let rows = rows.into_sorted_vec();
    let slow = rows.iter().map(|Reverse((entry, RowBits(row)))| SlowOperation {
        duration_ns: entry.duration_ns,
        time_ns: row.time_ns,
        layer: text(row.layer),
        op: text(row.op),
        path: text(row.path),
        offset: row.offset,
        bytes: bytes_of(row),
        errno: row.errno,
        host: text(row.host),
        pid: row.pid,
        thread: row.thread,
    });
    slow.collect()
}
