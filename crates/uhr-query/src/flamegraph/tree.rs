//! The stacks to draw, as a tree of functions: equal call paths share their nodes.

use rustc_hash::FxHashMap;
use uhr_model::FrameMode;

/// A function of a [`FlameTree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FunctionId(u32);

/// A node of a [`FlameTree`]: a function and the path that called it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(u32);

/// What a frame is called. Ordered by name first: so are siblings in the picture.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Function {
    pub(super) name: Box<str>,
    pub(super) module: Option<Box<str>>,
    pub(super) mode: Option<FrameMode>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Smaller than the node's own index, except for the root, which is its own parent.
    pub(super) parent: u32,
    pub(super) function: u32,
    pub(super) own_value: u64,
    pub(super) own_samples: u64,
}

/// Stacks, merged from the root. Nodes are added below existing ones, so a parent always has the smaller index; every
/// pass over the tree is a loop, and a stack as deep as a target likes cannot exhaust ours.
#[derive(Clone, Debug)]
pub struct FlameTree {
    functions: Vec<Function>,
    nodes: Vec<Node>,
    function_ids: FxHashMap<Function, u32>,
    node_ids: FxHashMap<(u32, u32), u32>,
}

impl FlameTree {
    /// A tree with nothing but its root, which stands for everything: `all`, or the name of a program.
    pub fn new(root: &str) -> Self {
        let mut tree = Self {
            functions: Vec::new(),
            nodes: Vec::new(),
            function_ids: FxHashMap::default(),
            node_ids: FxHashMap::default(),
        };
        let FunctionId(function) = tree.function(root, None, None);
        tree.nodes.push(Node { parent: 0, function, own_value: 0, own_samples: 0 });
        tree
    }

    /// The node that everything is below.
    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// The function of this name. `mode` is `None` for rows that are no code, such as `[too short to sample]`.
    pub fn function(&mut self, name: &str, module: Option<&str>, mode: Option<FrameMode>) -> FunctionId {
        let function = Function { name: name.into(), module: module.map(Into::into), mode };
        let next = self.functions.len() as u32;
        FunctionId(*self.function_ids.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            next
        }))
    }

    /// The node of `function` called from `caller`.
    pub fn child(&mut self, caller: NodeId, function: FunctionId) -> NodeId {
        let next = self.nodes.len() as u32;
        NodeId(*self.node_ids.entry((caller.0, function.0)).or_insert_with(|| {
            self.nodes.push(Node { parent: caller.0, function: function.0, own_value: 0, own_samples: 0 });
            next
        }))
    }

    /// Counts `samples` whose stacks end at `node` and weigh `value` together. Sums stop at the largest number.
    pub fn add(&mut self, node: NodeId, value: u64, samples: u64) {
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            node.own_value = node.own_value.saturating_add(value);
            node.own_samples = node.own_samples.saturating_add(samples);
        }
    }

    /// Nodes in the tree, the root among them.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn functions(&self) -> &[Function] {
        &self.functions
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn function_of(&self, node: u32) -> &Function {
        &self.functions[self.nodes[node as usize].function as usize]
    }
}
