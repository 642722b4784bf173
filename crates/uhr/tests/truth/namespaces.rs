//! Programs in namespaces of their own: paths and pids mean other things there, and names are theirs all the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{
    Place, Recorded, Running, Who, child_of, has, has_ebpf, is_root, number, rows, wait_until,
};

/// The samplers that there are here.
fn samplers() -> Vec<&'static str> {
    if has_ebpf() { vec!["perf", "ebpf"] } else { vec!["perf"] }
}

/// Runs a line of shell in new namespaces; `None` where they are not allowed.
fn inside(place: &Place, namespaces: &[&str], line: &str) -> Option<Running> {
    if !has("unshare") || !is_root() {
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-c", line]);
    let inside = Running::program(place, "inside", &mut command);
    wait_until("it runs", || inside.said().contains("up") || !inside.complained().is_empty());
    if inside.said().contains("up") {
        return Some(inside);
    }
    eprintln!("SKIPPED: no namespaces here: {}", inside.complained());
    None
}

fn attach(place: &Place, sampler: &str, pid: u32) -> Option<Recorded> {
    let (pid, rec) = (pid.to_string(), format!("{sampler}.rec"));
    place.record(Who::Us, &rec, &["--sampler", sampler, "--duration", "700ms", "--pid", &pid], &[]).or_skip()
}

/// The function that has nearly all of the time.
fn busiest(recorded: &Recorded) -> String {
    let answer = recorded.ask("query --group-by function");
    let first = &rows(&answer)[0];
    assert!(number(first, "self_share") > 0.8, "{answer:#}");
    first["key"]["function"].as_str().unwrap_or_default().to_owned()
}

fn build(place: &Place, out: &str, function: &str, padding: &str) {
    let source = format!(
        "#include <stdio.h>\nvolatile unsigned long sink;\n{padding}
        __attribute__((noinline)) void {function}(unsigned long n) {{ while (n--) sink += n; }}
        int main(void) {{ puts(\"up\"); fflush(stdout); for (int i = 0; i < 1000000; i++) {function}(100000); }}\n"
    );
    let file = place.path(&format!("{out}.c"));
    fs::write(&file, source).unwrap();
    crate::harness::built(Command::new("gcc").args(["-O1", "-g"]).arg(&file).arg("-o").arg(place.path(out)));
}

/// As in a container: what lies at the path of its program outside is another program.
#[test]
fn a_program_at_a_path_that_is_another_ones_outside() {
    let place = Place::new();
    build(&place, "program", "outside_work", "");
    build(
        &place,
        "other",
        "inside_work",
        "int pad(int x) { return x * 3; } int pad2(int x) { return x / 7; }",
    );
    let (program, other) = (place.path("program"), place.path("other"));
    let line = format!("mount --bind {} {p} && exec {p}", other.display(), p = program.display());
    for sampler in samplers() {
        let Some(inside) = inside(&place, &["-m"], &line) else { return };
        let Some(recorded) = attach(&place, sampler, inside.pid()) else { return };
        assert_eq!(busiest(&recorded), "inside_work", "{sampler}");
    }
}

/// The map is in a /tmp that only the program sees, and called by a pid that only it has.
#[test]
fn generated_code_in_a_container_has_the_names_of_its_own_map() {
    let place = Place::new();
    let program = place.c("mapped.c", &[]);
    let line = format!("exec 9<{}; mount -t tmpfs none /tmp && exec /proc/self/fd/9", program.display());
    for sampler in samplers() {
        let namespaces = ["-pfm", "--mount-proc", "--kill-child"];
        let Some(inside) = inside(&place, &namespaces, &line) else { return };
        let Some(recorded) = attach(&place, sampler, child_of(inside.pid()).unwrap()) else { return };
        assert_eq!(busiest(&recorded), "generated_spin", "{sampler}");
    }
}

/// Anybody may put a file into /tmp under the name of somebody's map.
#[test]
fn a_map_that_is_not_the_programs_own_names_nothing() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let place = Place::new();
    let program = place.c("mapped.c", &[]);
    let theirs = place.path("theirs");
    fs::write(&theirs, "0 7fffffffffff somebody_elses\n").unwrap();
    for sampler in samplers() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
            .arg(&program)
            .arg("bare");
        let target = Running::program(&place, "target", &mut command);
        wait_until("it runs", || target.said().contains("up"));
        let map = format!("/tmp/perf-{}.map", target.pid());
        for is_link in [true, false] {
            let _ = fs::remove_file(&map);
            if is_link {
                std::os::unix::fs::symlink(&theirs, &map).unwrap();
            } else {
                fs::copy(&theirs, &map).unwrap();
            }
            let recorded = attach(&place, sampler, target.pid());
            fs::remove_file(&map).unwrap();
            let Some(recorded) = recorded else { return };
            let name = busiest(&recorded);
            assert!(name.starts_with("[jit]"), "{sampler}, a link: {is_link}: {name}");
            fs::remove_dir_all(Path::new(&recorded.rec)).unwrap();
        }
    }
}
