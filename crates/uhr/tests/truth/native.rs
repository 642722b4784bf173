//! C without and with frame pointers: shares, lines, inlined functions and whole stacks, whichever way stacks are taken.

use crate::harness::{Place, Who, is_root, line_of};
use crate::shares::{assert_bottom, assert_line, assert_path, assert_totals, assert_whole};

fn shares_are_right(flags: &[&str], unwind: &str, who: Who, sampler: &str) {
    let place = Place::new();
    let program = place.c("shares.c", flags);
    let options = ["--unwind", unwind, "--sampler", sampler];
    let recorded = place.record(who, "rec", &options, &[&program, &"1.5"]);
    let Some(recorded) = recorded.or_skip() else { return };
    assert_totals(&recorded, &[("half", "half"), ("outer", "outer"), ("inner", "outer"), ("fifth", "fifth")]);
    // The inlined function has the time of the one that it was put into.
    assert_totals(&recorded, &[("mixed_in", "fifth")]);
    assert_line(&recorded, "half", line_of("shares.c", "half"), 1.0);
    assert_line(&recorded, "mixed_in", line_of("shares.c", "mixed_in"), 1.0);
    assert_line(&recorded, "inner", line_of("shares.c", "inner_first"), 0.5);
    assert_line(&recorded, "inner", line_of("shares.c", "inner_second"), 0.5);
    if unwind == "fp" {
        // What has no frame pointer itself, such as libc's clock, may pass over main; uhr says so of those samples.
        assert_bottom(&recorded, "main", 0.95);
    } else {
        assert_whole(&recorded, "main");
    }
    assert_path(&recorded, "inner", &["main", "outer", "middle", "inner"]);
    assert_path(&recorded, "mixed_in", &["main", "fifth", "mixed_in"]);
}

const WITHOUT: &[&str] = &["-fomit-frame-pointer"];
const WITH: &[&str] = &["-fno-omit-frame-pointer", "-DKEEP_FRAMES"];

#[test]
fn without_frame_pointers_chosen_by_uhr() {
    shares_are_right(WITHOUT, "auto", Who::Us, "auto");
}

#[test]
fn without_frame_pointers_by_unwind_tables() {
    shares_are_right(WITHOUT, "dwarf", Who::Us, "auto");
}

#[test]
fn with_frame_pointers_by_unwind_tables() {
    shares_are_right(WITH, "dwarf", Who::Us, "auto");
}

#[test]
fn with_frame_pointers_chosen_by_uhr() {
    shares_are_right(WITH, "auto", Who::Us, "auto");
}

#[test]
fn with_frame_pointers_by_frame_pointers() {
    shares_are_right(WITH, "fp", Who::Us, "auto");
}

/// gcc 12 leaves the frame out of functions that do not touch the stack: their callers are not in the kernel's chain.
#[test]
fn with_frame_pointers_but_in_leaves_by_frame_pointers() {
    shares_are_right(&["-fno-omit-frame-pointer"], "fp", Who::Us, "auto");
}

#[test]
fn by_perf_events() {
    shares_are_right(WITHOUT, "dwarf", Who::Us, "perf");
    shares_are_right(WITH, "fp", Who::Us, "perf");
}

#[test]
fn without_frame_pointers_as_an_ordinary_user() {
    if is_root() {
        shares_are_right(WITHOUT, "auto", Who::Ordinary, "auto");
    }
}
