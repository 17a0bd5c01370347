// SPDX-License-Identifier: GPL-2.0-or-later
//! Which rule each process of the guest falls under, its ancestors considered.
//!
//! A process's own match decides; else its parent's rule; else, if its
//! parent is gone, the rule that it had inherited before. Process 1 hands nothing down:
//! it adopts orphans, so having it as parent says nothing about origin.

use std::collections::HashMap;

pub const INIT: i32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Node {
    pub ppid: i32,
    /// Index of the rule that matches the process itself.
    pub direct: Option<usize>,
    /// Index of the rule once inherited from a parent that is gone.
    pub remembered: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub rule: usize,
    pub inherited: bool,
}

pub fn assign(nodes: &HashMap<i32, Node>) -> HashMap<i32, Assignment> {
    let mut known: HashMap<i32, Option<Assignment>> = HashMap::with_capacity(nodes.len());
    let mut chain = Vec::new();
    for &pid in nodes.keys() {
        let mut at = pid;
        // Up to an ancestor whose case is clear. The tree was read while it
        // changed, so a loop is possible: no chain is longer than the table.
        let mut found = loop {
            if let Some(&resolved) = known.get(&at) {
                break resolved;
            }
            match nodes.get(&at) {
                Some(node) if at != INIT && node.direct.is_none() && chain.len() <= nodes.len() => {
                    chain.push(at);
                    at = node.ppid;
                }
                Some(node) if at != INIT => {
                    let assignment = node.direct.map(|rule| Assignment {
                        rule,
                        inherited: false,
                    });
                    known.insert(at, assignment);
                    break assignment;
                }
                _ => break None,
            }
        };
        while let Some(below) = chain.pop() {
            let rule = found.map(|above| above.rule).or(nodes[&below].remembered);
            found = rule.map(|rule| Assignment {
                rule,
                inherited: true,
            });
            known.insert(below, found);
        }
    }
    known
        .into_iter()
        .filter_map(|(pid, assignment)| Some((pid, assignment?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(ppid: i32, direct: Option<usize>, remembered: Option<usize>) -> Node {
        Node {
            ppid,
            direct,
            remembered,
        }
    }

    fn own(rule: usize) -> Option<Assignment> {
        Some(Assignment {
            rule,
            inherited: false,
        })
    }

    fn handed_down(rule: usize) -> Option<Assignment> {
        Some(Assignment {
            rule,
            inherited: true,
        })
    }

    #[test]
    fn children_inherit_unless_a_rule_matches_them() {
        let nodes = HashMap::from([
            (1, node(0, None, None)),
            (10, node(1, Some(4), None)),
            (11, node(10, None, None)),
            (12, node(11, None, None)),
            (13, node(11, Some(5), None)),
            (14, node(13, None, None)),
            (20, node(1, None, None)),
        ]);
        let assigned = assign(&nodes);
        let of = |pid| assigned.get(&pid).copied();
        assert_eq!(of(10), own(4));
        assert_eq!(of(11), handed_down(4));
        assert_eq!(of(12), handed_down(4));
        assert_eq!(of(13), own(5));
        assert_eq!(of(14), handed_down(5));
        assert_eq!(of(20), None);
    }

    #[test]
    fn orphans_keep_what_they_had_and_hand_it_down() {
        let nodes = HashMap::from([(30, node(1, None, Some(2))), (31, node(30, None, None))]);
        let assigned = assign(&nodes);
        assert_eq!(assigned.get(&30).copied(), handed_down(2));
        assert_eq!(assigned.get(&31).copied(), handed_down(2));
    }

    #[test]
    fn init_neither_has_nor_hands_down() {
        let nodes = HashMap::from([(1, node(0, Some(0), None)), (5, node(1, None, None))]);
        assert!(assign(&nodes).is_empty());
    }

    #[test]
    fn a_loop_ends() {
        let nodes = HashMap::from([
            (5, node(6, None, None)),
            (6, node(5, None, None)),
            (7, node(7, None, Some(1))),
        ]);
        assert_eq!(assign(&nodes).get(&5), None);
    }

    /// The definition, written as it reads.
    fn model(nodes: &HashMap<i32, Node>, pid: i32) -> Option<Assignment> {
        let node = nodes.get(&pid).filter(|_| pid != INIT)?;
        match node.direct {
            Some(rule) => own(rule),
            None => model(nodes, node.ppid)
                .map(|above| above.rule)
                .or(node.remembered)
                .and_then(handed_down),
        }
    }

    proptest! {
        #[test]
        fn prop_agrees_with_the_definition(
            rows in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::option::weighted(0.2, 0usize..4), prop::option::weighted(0.2, 0usize..4)),
                1..60,
            ),
        ) {
            // Parents come earlier, so this is a forest rooted in process 1.
            let nodes: HashMap<i32, Node> = rows
                .iter()
                .enumerate()
                .map(|(row, (parent, direct, remembered))| {
                    let ppid = if row == 0 { 0 } else { parent.index(row) as i32 + 1 };
                    (row as i32 + 1, node(ppid, *direct, *remembered))
                })
                .collect();
            let assigned = assign(&nodes);
            for &pid in nodes.keys() {
                prop_assert_eq!(assigned.get(&pid).copied(), model(&nodes, pid), "pid {}", pid);
            }
        }
    }
}
