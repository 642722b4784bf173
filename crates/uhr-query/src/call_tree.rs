//! The tree of functions: stacks whose functions are the same share their nodes, whatever the addresses were. Downwards
//! from the first function of a thread (or from one that was asked for), or upwards from one to its callers.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::membership::Membership;
use crate::profile::Profile;
use crate::rollup::Amount;
use crate::select::Selection;

/// A tree of functions. Node 0 stands for everything; callers (upwards: callees) have smaller numbers.
#[derive(Debug)]
pub(crate) struct CallTree {
    pub(crate) parent: Vec<u32>,
    /// Function of each node; meaningless in node 0.
    pub(crate) function: Vec<u32>,
    /// What ends in a node, and what passes through it.
    pub(crate) own: Vec<Amount>,
    pub(crate) total: Vec<Amount>,
    /// For each node of the stack tree, where samples that end there are counted; 0 where they are not.
    of_node: Vec<u32>,
    children: FxHashMap<(u32, u32), u32>,
}

/// Callers that are followed upwards from a function: more than any stack that uhr writes has.
const LONGEST_PATH: usize = 4096;

impl CallTree {
    fn new(profile: &Profile) -> Self {
        Self {
            parent: vec![0],
            function: vec![0],
            own: Vec::new(),
            total: Vec::new(),
            of_node: vec![0; profile.tree.len()],
            children: FxHashMap::default(),
        }
    }

    /// The visible part of every stack that `sums` has something of. `root` is the one function that all begin with,
    /// where there is one: several functions that a user means together become one.
    pub(crate) fn down(profile: &Profile, selection: &Selection, sums: &[Amount], root: Option<u32>) -> Self {
        let mut tree = Self::new(profile);
        let through = through(profile, sums);
        for node in 1..profile.tree.len() {
            if through[node] == Amount::default() {
                continue;
            }
            let mut at = tree.of_node[profile.tree.parent[node] as usize];
            for location in selection.visible_locations(profile, node as u32).iter().rev() {
                let function = root.filter(|_| at == 0).unwrap_or(location.function);
                at = tree.child(at, function);
            }
            tree.of_node[node] = at;
        }
        tree.count(profile, sums);
        tree
    }

    /// From the outermost call of one of the functions to its callers. `sums` has nothing of other stacks.
    pub(crate) fn up(
        profile: &Profile,
        selection: &Selection,
        functions: &FxHashSet<u32>,
        sums: &[Amount],
        root: u32,
    ) -> Self {
        let mut tree = Self::new(profile);
        let below = selection.below(profile, functions);
        let through = through(profile, sums);
        for node in 1..profile.tree.len() {
            let parent = profile.tree.parent[node] as usize;
            if below[node] == 0 || through[node] == Amount::default() {
                continue;
            }
            tree.of_node[node] = match below[parent] {
                0 => tree.callers_of(profile, selection, node as u32, below[node] as usize, root),
                _ => tree.of_node[parent],
            };
        }
        tree.count(profile, sums);
        tree
    }

    fn callers_of(
        &mut self,
        profile: &Profile,
        selection: &Selection,
        node: u32,
        inner: usize,
        root: u32,
    ) -> u32 {
        let mut at = self.child(0, root);
        let mut length = 0;
        let (mut node, mut skip) = (node, inner);
        while node != 0 && length < LONGEST_PATH {
            for location in selection.visible_locations(profile, node).iter().skip(skip) {
                at = self.child(at, location.function);
                length += 1;
            }
            (node, skip) = (profile.tree.parent[node as usize], 0);
        }
        at
    }

    fn child(&mut self, parent: u32, function: u32) -> u32 {
        let next = self.parent.len() as u32;
        *self.children.entry((parent, function)).or_insert_with(|| {
            self.parent.push(parent);
            self.function.push(function);
            next
        })
    }

    fn count(&mut self, profile: &Profile, sums: &[Amount]) {
        self.own = vec![Amount::default(); self.parent.len()];
        for node in 1..profile.tree.len() {
            self.own[self.of_node[node] as usize].add(sums[node]);
        }
        self.own[0] = Amount::default();
        self.total = self.own.clone();
        for node in (1..self.parent.len()).rev() {
            let amount = self.total[node];
            self.total[self.parent[node] as usize].add(amount);
        }
    }

    /// Where samples are counted whose leaf is this node of the stack tree.
    pub(crate) fn of_node(&self, node: u32) -> u32 {
        self.of_node[node as usize]
    }

    /// The functions from the first (upwards: from the one asked for) to the node's own.
    pub(crate) fn path(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = node;
        while at != 0 {
            path.push(self.function[at as usize]);
            at = self.parent[at as usize];
        }
        path.reverse();
        path
    }

    /// How deep each node is; the root's children are at 0.
    pub(crate) fn depths(&self) -> Vec<u32> {
        let mut depths = vec![0u32; self.parent.len()];
        for node in 1..self.parent.len() {
            let parent = self.parent[node] as usize;
            depths[node] = if parent == 0 { 0 } else { depths[parent] + 1 };
        }
        depths
    }

    /// The nodes of at least this weight in preorder: children by weight, then by name.
    pub(crate) fn preorder(&self, profile: &Profile, least: u64) -> Vec<u32> {
        let name = |node: u32| {
            let function = self.function[node as usize];
            (&*profile.code.functions[function as usize].name, profile.code.module_of(function))
        };
        let mut sorted: Vec<u32> =
            (1..self.parent.len() as u32).filter(|node| self.total[*node as usize].weight >= least).collect();
        // The last child comes first: it is put on the stack below the others.
        sorted.sort_by(|&a, &b| {
            let by_parent = self.parent[a as usize].cmp(&self.parent[b as usize]);
            let by_weight = self.total[a as usize].weight.cmp(&self.total[b as usize].weight);
            by_parent.then(by_weight).then_with(|| name(b).cmp(&name(a)))
        });
        let children = |node: u32| {
            let from = sorted.partition_point(|&child| self.parent[child as usize] < node);
            let to = sorted.partition_point(|&child| self.parent[child as usize] <= node);
            &sorted[from..to]
        };
        let mut order = Vec::with_capacity(sorted.len());
        let mut todo: Vec<u32> = children(0).to_vec();
        while let Some(node) = todo.pop() {
            order.push(node);
            todo.extend_from_slice(children(node));
        }
        order
    }

    /// Which cells count for which of these nodes.
    pub(crate) fn members(&self, profile: &Profile, nodes: &[u32]) -> Membership {
        let mut own = vec![0u64; self.parent.len()];
        nodes.iter().enumerate().for_each(|(at, &node)| own[node as usize] |= 1 << at);
        let mut total = own.clone();
        for node in 1..self.parent.len() {
            total[node] |= total[self.parent[node] as usize];
        }
        let mut members = Membership::none(profile);
        for node in 1..profile.tree.len() {
            members.own[node] = own[self.of_node[node] as usize];
            members.total[node] = total[self.of_node[node] as usize];
        }
        members
    }
}

/// What passes through each node of the stack tree.
fn through(profile: &Profile, sums: &[Amount]) -> Vec<Amount> {
    let mut through = sums[..profile.tree.len()].to_vec();
    for node in (1..through.len()).rev() {
        let amount = through[node];
        through[profile.tree.parent[node] as usize].add(amount);
    }
    through
}
