//! What is written comes back: after a proper end, after a kill, and in the finished form.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use uhr_model::StackEnding;
use uhr_recording::tables::{
    FrameRow, LocationRow, Locations, ModuleRow, ProcessRow, SampleRow, Samples, StackRow, Stacks, ThreadRow,
};
use uhr_recording::{
    Clock, Finalized, Host, Manifest, Recording, RecordingError, RecordingWriter, Settings, State, finalize,
};

fn manifest() -> Manifest {
    Manifest::new(Settings::default(), Host::default(), Clock { monotonic_ns: 1_000, realtime_ns: 5_000 })
}

fn sample(time_ns: u64, stack: u32, ending: StackEnding, weight_ns: u64) -> SampleRow {
    SampleRow { time_ns, thread: 0, cpu: 1, stack, weight_ns, ending: ending.code(), syscall: None }
}

/// main -> a -> b twice over (a second epoch found the same nodes again), and main -> c.
fn write_small(folder: &Path) -> RecordingWriter {
    let mut writer = RecordingWriter::create(folder, &manifest()).unwrap();
    writer.push_process(ProcessRow {
        id: 0,
        pid: 7,
        inner_pid: None,
        parent: None,
        name: "before exec".into(),
        executable: None,
        start_ns: 0,
        end_ns: None,
        cgroup: None,
        container: None,
        pod: None,
    });
    let process = ProcessRow {
        id: 0,
        pid: 7,
        inner_pid: None,
        parent: None,
        name: "after".into(),
        executable: None,
        start_ns: 0,
        end_ns: Some(9),
        cgroup: None,
        container: None,
        pod: None,
    };
    writer.push_process(process);
    writer.push_thread(ThreadRow {
        id: 0,
        process: 0,
        tid: 7,
        name: "t".into(),
        start_ns: 0,
        end_ns: None,
        on_cpu_ns: 1_000,
        samples: 3,
        pool: 0,
        switches: 0,
        run_delay_ns: None,
    });
    writer.push_module(ModuleRow {
        id: 0,
        kind: 0,
        path: "/bin/x".into(),
        build_id: None,
        process: None,
        symbols: None,
    });
    for id in 0..4 {
        writer.push_frame(FrameRow {
            id,
            mode: 0,
            module: Some(0),
            address: u64::from(id),
            is_return: false,
        });
    }
    let mut node = |id, parent, frame| writer.push_stack(StackRow { id, parent, frame });
    node(0, None, None);
    node(1, Some(0), Some(0)); // main
    node(2, Some(1), Some(3)); // main c
    node(3, Some(1), Some(1)); // main a
    node(4, Some(3), Some(2)); // main a b
    node(5, Some(0), Some(0)); // a second epoch: main
    node(6, Some(5), Some(1)); // main a
    node(7, Some(6), Some(2)); // main a b
    writer.push_sample(sample(10, 4, StackEnding::Complete, 1));
    writer.push_sample(sample(20, 7, StackEnding::Complete, 1));
    writer.push_sample(sample(30, 2, StackEnding::NoUnwindInfo, 1));
    writer.push_sample(sample(40, 0, StackEnding::KernelNotVisible, 100));
    writer.flush().unwrap();
    writer
}

#[test]
fn a_finished_recording_has_exact_weights_and_a_merged_depth_first_tree() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec");
    let mut done = manifest();
    done.state = State::Captured;
    write_small(&path).finish(&done).unwrap();

    let captured = Recording::open(&path).unwrap();
    assert_eq!(captured.manifest.state, State::Captured);
    assert_eq!(captured.processes().unwrap()[0].name, "after");

    let locations = vec![LocationRow {
        frame: 0,
        depth: 0,
        function: Some("main".into()),
        file: None,
        line: None,
        function_start: Some(0),
        mode: None,
        reason: None,
    }];
    finalize(
        &captured,
        Finalized { locations, module_symbols: vec![Some("dwarf".into())], ..Finalized::default() },
    )
    .unwrap();

    let finished = Recording::open(&path).unwrap();
    assert!(finished.is_finished());
    let stacks: Stacks = finished.table().unwrap();
    assert_eq!(stacks.parent, [None, Some(0), Some(1), Some(1), Some(3)]);
    assert_eq!(stacks.frame, [None, Some(0), Some(3), Some(1), Some(2)]);
    let samples: Samples = finished.table().unwrap();
    assert_eq!(samples.stack, [4, 4, 2, 0]);
    assert_eq!(samples.weight_ns.iter().sum::<u64>(), 1_000, "the thread's exact time");
    assert_eq!(samples.weight_ns[3], 100, "time without a stack keeps its weight");
    assert_eq!(finished.table::<Locations>().unwrap().function, [Some("main".to_owned())]);
    assert_eq!(finished.modules().unwrap()[0].symbols.as_deref(), Some("dwarf"));
    assert!(!path.join("samples.arrows").exists(), "the streams go last, and go");

    let mut projected = Samples::default();
    finished.read_row_group(0, &["stack", "thread"], &mut projected).unwrap();
    assert_eq!((projected.stack.len(), projected.time_ns.len()), (4, 0));
}

#[test]
fn a_killed_writer_loses_only_what_it_had_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec");
    let mut writer = write_small(&path);
    assert_eq!(Recording::open(&path).unwrap().manifest.state, State::Recording, "it is being written");
    writer.push_sample(sample(50, 2, StackEnding::Complete, 1)); // never flushed
    drop(writer);
    // The kill also tore the last batch of one table.
    let stream = path.join("samples.arrows");
    let bytes = std::fs::read(&stream).unwrap();
    for keep in [bytes.len(), bytes.len() - 3] {
        std::fs::write(&stream, &bytes[..keep]).unwrap();
        let recovered = Recording::open(&path).unwrap();
        assert_eq!(recovered.manifest.state, State::Recovered);
        let samples: Samples = recovered.table().unwrap();
        assert_eq!(samples.time_ns.len(), if keep == bytes.len() { 4 } else { 0 });
    }
}

/// A table that is another one's file, or has columns of another version, is damaged; nothing panics.
#[test]
fn tables_in_each_others_place_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec");
    let mut done = manifest();
    done.state = State::Captured;
    write_small(&path).finish(&done).unwrap();
    let streams = ["samples", "threads", "stacks", "modules"].map(|name| format!("{name}.arrows"));
    let read = |recording: &Recording| {
        [
            recording.threads().is_err(),
            recording.modules().is_err(),
            recording.table::<Samples>().is_err(),
            recording.table::<Stacks>().is_err(),
        ]
    };
    let growing = swapped(&path, &streams, &read);
    finalize(&Recording::open(&path).unwrap(), Finalized::default()).unwrap();
    let finished = swapped(&path, &streams.map(|name| name.replace("arrows", "parquet")), &read);
    assert!(growing >= 12 && finished >= 12, "each pair: {growing} {finished}");
}

/// Puts each file in the place of each other, and counts how often a table was refused.
fn swapped(path: &Path, files: &[String], read: &dyn Fn(&Recording) -> [bool; 4]) -> usize {
    let mut refused = 0;
    for place in files {
        let own = std::fs::read(path.join(place)).unwrap();
        for other in files.iter().filter(|other| *other != place) {
            std::fs::copy(path.join(other), path.join(place)).unwrap();
            refused += read(&Recording::open(path).unwrap()).iter().filter(|is_err| **is_err).count();
        }
        std::fs::write(path.join(place), own).unwrap();
    }
    refused
}

#[test]
fn what_is_not_a_recording_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| Recording::open(path).unwrap_err().to_string();
    assert!(open(&folder.path().join("none")).contains("nothing is there"));
    assert!(open(folder.path()).contains("no manifest.json"));
    std::fs::write(folder.path().join("manifest.json"), "{}").unwrap();
    assert!(open(folder.path()).contains("not one of uhr"));
    std::fs::write(folder.path().join("manifest.json"), r#"{"format":"uhr-recording","format_version":99}"#)
        .unwrap();
    assert!(matches!(Recording::open(folder.path()), Err(RecordingError::TooNew { version: 99, .. })));
    assert!(matches!(
        RecordingWriter::create(folder.path(), &manifest()),
        Err(RecordingError::Exists { .. })
    ));
}
