//! The SVG document: heading, notes, legend, frames, style and script.

use std::io::{self, Write};

use uhr_model::FrameMode;

use super::FlameGraph;
use super::colour;
use super::layout::{Layout, Placed};
use super::quantity::{grouped, percent, quantity};
use super::text::{Escaped, label, tooltip_name, visible, wrapped};

const STYLE: &str = include_str!("flamegraph.css");
const SCRIPT: &str = include_str!("flamegraph.js");

/// Size of the picture before the script fits it to the window, in pixels.
const WIDTH: u64 = 1200;
const MARGIN: u64 = 16;
/// From one row of frames to the next, and the height of a frame in it.
const ROW: u64 = 19;
const FRAME: u64 = 18;
/// Width of a column of the 12 px fixed-width fonts that the style names, in hundredths of a pixel, rounded up.
const COLUMN: u64 = 725;
/// Room left of a frame's text and right of it together, in hundredths of a pixel.
const PADDING: u64 = 800;
/// Columns of the heading's lines: they fit the narrowest picture of the script, 880 pixels.
const LINE_COLUMNS: usize = 126;
const LINE: u64 = 18;
/// Lines of subtitle. A command line can have megabytes; the notes are ours and are printed in full.
const SUBTITLE_LINES: usize = 4;

pub(super) fn write(graph: &FlameGraph<'_>, layout: &Layout, out: &mut impl Write) -> io::Result<()> {
    let head = Head::of(graph, layout);
    let top = head.height();
    let height = top + u64::from(layout.rows) * ROW + MARGIN;
    let icicle = graph.icicle.unwrap_or(height > FlameGraph::TALL);
    let title = visible(graph.title);
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="uhr-flamegraph" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="figure" aria-label="{}">"#,
        Escaped(&title)
    )?;
    writeln!(out, "<title>{}</title>", Escaped(&title))?;
    writeln!(out, "<style><![CDATA[\n{STYLE}]]></style>")?;
    // The attribute is for viewers whose style sheets know no variables.
    writeln!(out, r#"<rect class="page" width="100%" height="100%" fill="white"/>"#)?;
    head.write(out)?;
    writeln!(
        out,
        r#"<g class="frames" role="tree" aria-label="Call stacks" data-top="{top}" data-rows="{}" data-total="{}" data-icicle="{}">"#,
        layout.rows,
        Escaped(&quantity(layout.total, graph.unit)),
        icicle
    )?;
    for frame in &layout.frames {
        let row = if icicle { frame.depth } else { layout.rows - 1 - frame.depth };
        write_frame(graph, layout, frame, top + u64::from(row) * ROW, out)?;
    }
    writeln!(out, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")
}

fn write_frame(
    graph: &FlameGraph<'_>,
    layout: &Layout,
    frame: &Placed,
    y: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let function = graph.tree.function_of(frame.node);
    let left = position(frame.start, layout.total);
    // An empty recording still has a root to point at.
    let end = if layout.total == 0 {
        position(1, 1)
    } else {
        position(frame.start.saturating_add(frame.value), layout.total)
    };
    let width = end - left;
    let name = tooltip_name(&function.name);
    write!(
        out,
        r#"<g role="treeitem" aria-level="{}" data-start="{}" data-value="{}"><title>{}"#,
        frame.depth + 1,
        frame.start,
        frame.value,
        Escaped(&name)
    )?;
    write_tooltip_lines(graph, layout, frame, out)?;
    write!(
        out,
        r#"<rect class="{}" x="{}" y="{y}" width="{}" height="{FRAME}" rx="2"/>"#,
        colour::class(function),
        Hundredths(left),
        Hundredths(width)
    )?;
    if let Some(text) = label(&name, (width.saturating_sub(PADDING) / COLUMN) as usize) {
        write!(
            out,
            r#"<text x="{}" y="{}">{}</text>"#,
            Hundredths(left + PADDING / 2),
            y + 13,
            Escaped(&text)
        )?;
    }
    writeln!(out, "</g>")
}

/// The tooltip below the name. The script reads it by its lines: name, code (left out for what is none), numbers.
fn write_tooltip_lines(
    graph: &FlameGraph<'_>,
    layout: &Layout,
    frame: &Placed,
    out: &mut impl Write,
) -> io::Result<()> {
    let function = graph.tree.function_of(frame.node);
    match (&function.module, function.mode) {
        (Some(module), Some(mode)) => {
            write!(out, "\n{} · {}", Escaped(&tooltip_name(module)), colour::label(mode))?;
        }
        (Some(module), None) => write!(out, "\n{}", Escaped(&tooltip_name(module)))?,
        (None, Some(mode)) => write!(out, "\n{}", colour::label(mode))?,
        (None, None) => {}
    }
    write!(
        out,
        "\n{}, {}, {} {}</title>",
        Escaped(&quantity(frame.value, graph.unit)),
        percent(frame.value, layout.total),
        grouped(frame.samples),
        if frame.samples == 1 { "sample" } else { "samples" }
    )
}

/// Where a value lies in the picture, in hundredths of a pixel. Neighbours share their edge exactly.
fn position(value: u64, total: u64) -> u64 {
    let room = u128::from((WIDTH - 2 * MARGIN) * 100);
    let offset = if total == 0 { 0 } else { u128::from(value.min(total)) * room / u128::from(total) };
    MARGIN * 100 + offset as u64
}

/// A length, printed in pixels.
struct Hundredths(u64);

impl std::fmt::Display for Hundredths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (pixels, 0) => write!(f, "{pixels}"),
            (pixels, rest) if rest % 10 == 0 => write!(f, "{pixels}.{}", rest / 10),
            (pixels, rest) => write!(f, "{pixels}.{rest:02}"),
        }
    }
}

/// What stands above the frames.
struct Head {
    title: String,
    subtitle: Vec<String>,
    notes: Vec<String>,
    /// Kinds of frames in the picture.
    modes: Vec<FrameMode>,
}

impl Head {
    fn of(graph: &FlameGraph<'_>, layout: &Layout) -> Self {
        let mut subtitle = wrapped(&visible(graph.subtitle), LINE_COLUMNS);
        if subtitle.len() > SUBTITLE_LINES {
            subtitle.truncate(SUBTITLE_LINES);
            subtitle.iter_mut().skip(SUBTITLE_LINES - 1).for_each(|last| last.push('…'));
        }
        let extent = match layout.hidden {
            _ if layout.total == 0 => "Nothing was recorded.".to_string(),
            0 => format!("All {} frames are drawn.", grouped(layout.frames.len() as u64)),
            hidden => format!(
                "{} {} narrower than {} % of the total {} not drawn and not searched; {} of the total lies in {}.",
                grouped(hidden as u64),
                if hidden == 1 { "frame" } else { "frames" },
                (graph.min_share * 1e7).round() / 1e5,
                if hidden == 1 { "is" } else { "are" },
                percent(layout.hidden_value, layout.total),
                if hidden == 1 { "it" } else { "them" }
            ),
        };
        let mut notes: Vec<String> =
            graph.notes.iter().flat_map(|note| wrapped(&visible(note), LINE_COLUMNS)).collect();
        notes.push(extent);
        let mut modes: Vec<FrameMode> =
            layout.frames.iter().filter_map(|frame| graph.tree.function_of(frame.node).mode).collect();
        modes.sort_unstable();
        modes.dedup();
        let title = label(&visible(graph.title), 80).unwrap_or_default().into_owned();
        Self { title, subtitle, notes, modes }
    }

    /// Where the frames begin: under title, lines and the legend's row.
    fn height(&self) -> u64 {
        40 + LINE * (self.subtitle.len() + self.notes.len()) as u64 + 52
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, r#"<text class="title" x="{MARGIN}" y="34">{}</text>"#, Escaped(&self.title))?;
        let lines = self.subtitle.iter().map(|line| ("subtitle", line));
        let mut y = 40;
        for (class, line) in lines.chain(self.notes.iter().map(|line| ("note", line))) {
            y += LINE;
            writeln!(out, r#"<text class="{class}" x="{MARGIN}" y="{y}">{}</text>"#, Escaped(line))?;
        }
        writeln!(out, r#"<g class="legend">"#)?;
        let (mut x, y) = (MARGIN, y + 30);
        for mode in &self.modes {
            let (class, label) = (colour::letter(*mode), colour::label(*mode));
            write!(out, r#"<rect class="{class}4" x="{x}" y="{}" width="12" height="12" rx="3"/>"#, y - 10)?;
            writeln!(out, r#"<text x="{}" y="{y}">{label}</text>"#, x + 18)?;
            x += 18 + 7 * label.len() as u64 + 20;
        }
        writeln!(out, "</g>")
    }
}
