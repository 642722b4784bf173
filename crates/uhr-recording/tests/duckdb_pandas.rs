//! Finished tables open in DuckDB and in pandas as they are, and say there what was written. `UHR_PYTHON` names a
//! Python that has both (./check makes one).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

use uhr_model::{FrameMode, ModuleKind, StackEnding, WaitKind};
use uhr_recording::tables::{
    FrameRow, LocationRow, ModuleRow, OffCpuRow, ProcessRow, SampleRow, StackRow, ThreadRow,
};
use uhr_recording::{Clock, Finalized, Host, Manifest, Recording, RecordingWriter, Settings, finalize};

/// main calls work; 3 samples in work and one in main, 4 s on CPU, one sleep of 2 s.
fn write_recording(folder: &Path) {
    let manifest = Manifest::new(Settings::default(), Host::default(), Clock::default());
    let mut writer = RecordingWriter::create(folder, &manifest).unwrap();
    let (complete, sleep) = (StackEnding::Complete.code(), WaitKind::Sleep.code());
    let name = "it's \"ünï\"; DROP TABLE".to_owned();
    writer.push_process(ProcessRow {
        id: 0,
        pid: 7,
        inner_pid: None,
        parent: None,
        name: name.clone(),
        executable: Some("/bin/x".into()),
        start_ns: 0,
        end_ns: Some(u64::MAX),
        cgroup: None,
        container: None,
        pod: None,
    });
    writer.push_thread(ThreadRow {
        id: 0,
        process: 0,
        tid: 7,
        name,
        start_ns: 0,
        end_ns: None,
        on_cpu_ns: 4_000_000_000,
        samples: 4,
        pool: 0,
        switches: 0,
        run_delay_ns: None,
    });
    let (kind, path) = (ModuleKind::Elf.code(), "/bin/x".to_owned());
    writer.push_module(ModuleRow { id: 0, kind, path, build_id: None, process: None, symbols: None });
    for id in 0..2 {
        let (mode, address) = (FrameMode::User.code(), 0x1000 + u64::from(id));
        writer.push_frame(FrameRow { id, mode, module: Some(0), address, is_return: id == 0 });
    }
    writer.push_stack(StackRow { id: 0, parent: None, frame: None });
    writer.push_stack(StackRow { id: 1, parent: Some(0), frame: Some(0) });
    writer.push_stack(StackRow { id: 2, parent: Some(1), frame: Some(1) });
    for (time_ns, stack) in [(10, 2), (20, 2), (30, 1), (40, 2)] {
        writer.push_sample(SampleRow {
            time_ns,
            thread: 0,
            cpu: 1,
            stack,
            weight_ns: 1,
            ending: complete,
            syscall: None,
        });
    }
    writer.push_off_cpu(OffCpuRow {
        start_ns: 50,
        end_ns: 2_000_000_050,
        duration_ns: 2_000_000_000,
        weight_ns: 2_000_000_000,
        count: 1,
        thread: 0,
        stack: 2,
        ending: complete,
        runnable: false,
        wait: sleep,
        syscall: Some(230),
        waker: 0,
        waker_stack: 0,
    });
    writer.finish(&manifest).unwrap();
    let location = |frame, function: &str| LocationRow {
        frame,
        depth: 0,
        function: Some(function.to_owned()),
        file: None,
        line: Some(1),
        function_start: Some(0x1000),
        mode: None,
        reason: None,
    };
    let names = Finalized { locations: vec![location(0, "main"), location(1, "work")], ..Default::default() };
    finalize(&Recording::open(folder).unwrap(), names).unwrap();
}

const QUESTIONS: &str = r#"
import sys, duckdb, pandas
rec = sys.argv[1]
by_function = duckdb.sql(f"""
    SELECT l.function, sum(s.weight_ns)::BIGINT
    FROM '{rec}/samples.parquet' s
    JOIN '{rec}/stacks.parquet' k ON k.id = s.stack
    JOIN '{rec}/locations.parquet' l ON l.frame = k.frame AND l.depth = 0
    GROUP BY 1 ORDER BY 2 DESC""").fetchall()
assert by_function == [("work", 3_000_000_000), ("main", 1_000_000_000)], by_function
waits = duckdb.sql(f"SELECT sum(duration_ns)::BIGINT, max(syscall), bool_or(runnable) FROM '{rec}/offcpu.parquet'").fetchall()[0]
assert waits == (2_000_000_000, 230, False), waits
for table in "samples offcpu wakers faults resident stacks frames locations modules mappings processes threads".split():
    rows = pandas.read_parquet(f"{rec}/{table}.parquet")
    assert len(rows) == duckdb.sql(f"SELECT count(*) FROM '{rec}/{table}.parquet'").fetchall()[0][0], table
processes = pandas.read_parquet(f"{rec}/processes.parquet")
assert processes.name[0] == "it's \"ünï\"; DROP TABLE" and processes.end_ns[0] == 2**64 - 1, processes
threads = pandas.read_parquet(f"{rec}/threads.parquet")
assert threads.on_cpu_ns[0] == 4_000_000_000 and pandas.isna(threads.end_ns[0]), threads
print("duckdb", duckdb.__version__, "pandas", pandas.__version__)
"#;

#[test]
fn finished_tables_open_in_duckdb_and_pandas() {
    let Some(python) = std::env::var_os("UHR_PYTHON") else {
        eprintln!("SKIPPED duckdb_pandas: UHR_PYTHON names no Python that has duckdb and pandas");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec");
    write_recording(&path);
    let asked = Command::new(python).args(["-c", QUESTIONS]).arg(&path).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    assert!(asked.stdout.starts_with(b"duckdb"), "the script ended early");
}
