//! Where each frame goes: totals, the order of siblings, and which frames are too narrow to draw.

use super::Drawn;
use super::tree::FlameTree;

/// A frame of the picture. Positions and widths are in the unit of the values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) node: u32,
    pub(super) depth: u32,
    pub(super) start: u64,
    pub(super) value: u64,
    pub(super) samples: u64,
}

/// The frames to draw, callers before callees, siblings from left to right.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) frames: Vec<Placed>,
    pub(super) total: u64,
    /// Rows of frames, the root's among them.
    pub(super) rows: u32,
    /// Sum of the hidden frames that stand on a drawn one.
    pub(super) hidden_value: u64,
    pub(super) hidden: usize,
}

impl Layout {
    pub(super) fn of(tree: &FlameTree, min_share: f64) -> Self {
        let totals = Totals::of(tree);
        let children = Children::of(tree);
        let total = totals.value[0];
        let mut layout = Self { frames: Vec::new(), total, rows: 1, hidden_value: 0, hidden: 0 };
        let mut open = vec![(0u32, 0u32, 0u64)];
        while let Some((node, depth, start)) = open.pop() {
            let at = node as usize;
            let (value, samples) = (totals.value[at], totals.samples[at]);
            layout.frames.push(Placed { node, depth, start, value, samples });
            layout.rows = layout.rows.max(depth + 1);
            let first_child = open.len();
            let mut next = start;
            for &child in children.of_node(node) {
                let value = totals.value[child as usize];
                if value == 0 || (value as f64) < min_share * total as f64 {
                    layout.hidden_value = layout.hidden_value.saturating_add(value);
                    layout.hidden += totals.nodes[child as usize] as usize;
                } else {
                    open.push((child, depth + 1, next));
                }
                next = next.saturating_add(value);
            }
            open[first_child..].reverse();
        }
        layout
    }

    pub(super) fn drawn(&self, tree: &FlameTree) -> Drawn {
        debug_assert_eq!(self.frames.len() + self.hidden, tree.node_count());
        let hidden_share = if self.total == 0 { 0.0 } else { self.hidden_value as f64 / self.total as f64 };
        Drawn { frames: self.frames.len(), hidden: self.hidden, hidden_share }
    }
}

/// Sums of each node and everything below it.
struct Totals {
    value: Vec<u64>,
    samples: Vec<u64>,
    nodes: Vec<u32>,
}

impl Totals {
    fn of(tree: &FlameTree) -> Self {
        let nodes = tree.nodes();
        let mut totals = Self {
            value: nodes.iter().map(|node| node.own_value).collect(),
            samples: nodes.iter().map(|node| node.own_samples).collect(),
            nodes: vec![1; nodes.len()],
        };
        // A parent has a smaller index than its children, so each is complete when its turn comes.
        for at in (1..nodes.len()).rev() {
            let parent = nodes[at].parent as usize;
            totals.value[parent] = totals.value[parent].saturating_add(totals.value[at]);
            totals.samples[parent] = totals.samples[parent].saturating_add(totals.samples[at]);
            totals.nodes[parent] += totals.nodes[at];
        }
        totals
    }
}

/// The children of each node, by name: a function keeps its place from one recording to the next.
struct Children {
    sorted: Vec<u32>,
    ends: Vec<u32>,
}

impl Children {
    fn of(tree: &FlameTree) -> Self {
        let functions = tree.functions();
        let mut by_name: Vec<u32> = (0..functions.len() as u32).collect();
        by_name.sort_unstable_by_key(|&id| &functions[id as usize]);
        let mut rank = vec![0u32; functions.len()];
        for (place, &id) in by_name.iter().enumerate() {
            rank[id as usize] = place as u32;
        }
        let nodes = tree.nodes();
        let mut sorted: Vec<u32> = (1..nodes.len() as u32).collect();
        sorted.sort_unstable_by_key(|&node| {
            let node = &nodes[node as usize];
            (node.parent, rank[node.function as usize])
        });
        let mut ends = vec![0u32; nodes.len()];
        for &node in &sorted {
            ends[nodes[node as usize].parent as usize] += 1;
        }
        let mut end = 0;
        for slot in &mut ends {
            end += *slot;
            *slot = end;
        }
        Self { sorted, ends }
    }

    fn of_node(&self, node: u32) -> &[u32] {
        let at = node as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.sorted[start as usize..self.ends[at] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uhr_model::FrameMode;

    fn tree(stacks: &[(&str, u64)]) -> FlameTree {
        let mut tree = FlameTree::new("all");
        for (stack, value) in stacks {
            let mut node = tree.root();
            for name in stack.split(';') {
                let function = tree.function(name, Some("app"), Some(FrameMode::User));
                node = tree.child(node, function);
            }
            tree.add(node, *value, 1);
        }
        tree
    }

    fn placed(tree: &FlameTree, min_share: f64) -> Vec<(String, u32, u64, u64)> {
        let layout = Layout::of(tree, min_share);
        let row = |frame: &Placed| {
            (tree.function_of(frame.node).name.to_string(), frame.depth, frame.start, frame.value)
        };
        layout.frames.iter().map(row).collect()
    }

    #[test]
    fn siblings_stand_by_name_and_callers_hold_what_they_called() {
        let tree = tree(&[
            ("main;write", 20),
            ("main;parse;lex", 30),
            ("main", 5),
            ("main;parse", 10),
            ("idle", 35),
        ]);
        let expected = [
            ("all", 0, 0, 100),
            ("idle", 1, 0, 35),
            ("main", 1, 35, 65),
            ("parse", 2, 35, 40),
            ("lex", 3, 35, 30),
            ("write", 2, 75, 20),
        ];
        assert_eq!(placed(&tree, 0.0), expected.map(|(name, d, x, v)| (name.to_string(), d, x, v)));
    }

    #[test]
    fn narrow_frames_are_counted_with_all_they_called_and_leave_their_place_empty() {
        let tree = tree(&[("a;b;c", 1), ("a;d", 2), ("e", 997)]);
        assert_eq!(placed(&tree, 0.01), [("all".to_string(), 0, 0, 1000), ("e".to_string(), 1, 3, 997)]);
        let drawn = Layout::of(&tree, 0.01).drawn(&tree);
        assert_eq!(drawn, Drawn { frames: 2, hidden: 4, hidden_share: 0.003 });
    }

    #[test]
    fn an_empty_tree_is_its_root() {
        let tree = FlameTree::new("all");
        assert_eq!(Layout::of(&tree, 0.001).drawn(&tree), Drawn { frames: 1, hidden: 0, hidden_share: 0.0 });
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let tree = tree(&[("a", u64::MAX), ("b", u64::MAX)]);
        assert_eq!(Layout::of(&tree, 0.0).total, u64::MAX);
    }
}
