//! `docs/cli.md` is written from the definitions. `UHR_BLESS=1 cargo test -p uhr` writes it anew.

use std::fmt::Write as _;

use clap::CommandFactory;

use super::Cli;

#[test]
fn definitions_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn docs_cli_md_says_what_the_definitions_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let expected = reference();
    if std::env::var_os("UHR_BLESS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "docs/cli.md is stale: write it anew with UHR_BLESS=1 cargo test -p uhr");
}

fn reference() -> String {
    // As wide as the terminal of the reader of a page, whatever terminal the test runs in.
    let mut uhr = Cli::command().term_width(96);
    uhr.build();
    let mut page = String::from(
        "# The command line\n\n\
         Written from the definitions in `crates/uhr/src/args`; a test holds them together.\n",
    );
    let mut add = |name: &str, command: &mut clap::Command| {
        let help = command.render_long_help().to_string();
        let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim());
    };
    add("uhr", &mut uhr.clone());
    for command in uhr.get_subcommands_mut() {
        let name = format!("uhr {}", command.get_name());
        add(&name, &mut command.clone().term_width(96));
    }
    page
}
