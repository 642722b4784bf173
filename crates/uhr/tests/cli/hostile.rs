//! Names that recorded programs chose to harm whoever looks at them.

use crate::fixture::Fixture;

const HOSTILE: &str = "\x1b[2J\x1b]0;owned\x07 <script>alert(1)</script>\n; rm -rf / \u{202e}\u{9b}31m";

fn assert_harmless(text: &str, what: &str) {
    for c in text.chars() {
        let is_layout = c == '\n';
        assert!(is_layout || !c.is_control(), "{what}: {c:?} in {text:?}");
        assert!(!('\u{202a}'..='\u{202e}').contains(&c), "{what}: {c:?}");
    }
}

#[test]
fn control_characters_never_reach_the_terminal() {
    let fixture = Fixture::with_name_of("lex", HOSTILE);
    for args in [
        &["query", "rec"][..],
        &["query", "rec", "--detail", "full"],
        &["overview", "rec"],
        &["call-paths", "rec", "--function", "parse_json", "--callees"],
        &["call-paths", "rec", "--function", "script"],
    ] {
        let ran = fixture.run(args);
        assert_eq!(ran.status, 0, "{args:?}: {}", ran.stderr);
        assert_harmless(&ran.stdout, &args.join(" "));
        assert_harmless(&ran.stderr, &args.join(" "));
        assert!(ran.stdout.contains("<script>"), "{args:?}: the name is there, as text: {}", ran.stdout);
    }
}

#[test]
fn bytes_that_are_no_code_are_shown_as_such() {
    let fixture = Fixture::with_name_of("parse_json", HOSTILE);
    for form in [&[][..], &["--json"]] {
        let ran = fixture.run(&[&["annotate", "rec", "--function", "script", "--asm"], form].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_harmless(&ran.stdout, "annotate");
    }
}

#[test]
fn errors_repeat_names_harmlessly() {
    let fixture = Fixture::new();
    let asked = "no\x1b[31msuch\nfunction";
    let ran = fixture.run(&["query", "rec", "--under", asked]);
    assert_eq!(ran.status, 1);
    assert_harmless(&ran.stderr, "error");
    let usage = fixture.run(&["query", "rec", "--group-by", asked]);
    assert_eq!(usage.status, 2);
    assert_harmless(&usage.stderr, "usage");
}

#[test]
fn pictures_and_stacks_hold_names_as_text() {
    let fixture = Fixture::with_name_of("lex", HOSTILE);
    let svg = fixture.run(&["flamegraph", "rec"]).stdout;
    assert!(!svg.contains("<script>alert"), "a name became a script");
    let stacks = fixture.run(&["export", "rec", "--format", "collapsed"]).stdout;
    for line in stacks.lines() {
        let weight = line.rsplit_once(' ').unwrap().1;
        assert!(weight.parse::<u64>().is_ok(), "{line:?}");
    }
}
