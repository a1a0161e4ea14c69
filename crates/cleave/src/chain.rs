//! Chains: a node and what follows it, as long as each value has one user that works on it in place.

use crate::error::{Error, Result};
use crate::text::near;
use cleave_ir::{Class, Graph, Kind, NodeId};

/// A chain, and why it is no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its nodes in order, the first as asked for.
    pub nodes: Vec<NodeId>,
    /// What ends it: `relu has 2 users: conv2d_1, add`, `then max_pool2d`.
    pub end: String,
}

impl Chain {
    /// The bare names of the ops called.
    pub fn ops(&self, g: &Graph) -> Vec<String> {
        let name = |id: &NodeId| g.node(*id).op().map_or_else(|| g.node(*id).name.clone(), |o| o.base().to_string());
        self.nodes.iter().map(name).collect()
    }
}

/// The chain that begins at a node, named as `conv2d` or `%conv2d`. It goes on to the one user of its last value, as long as that is pointwise, a
/// normalization, quantize or dequantize, or takes a result out of a tuple: a convolution, its batch norm and its
/// activation, however they are spelled.
///
/// # Errors
/// A name that no node has, with the nearest ones.
pub fn of(g: &Graph, name: &str) -> Result<Chain> {
    let name = name.strip_prefix('%').unwrap_or(name);
    let mut last = g.find(name).ok_or_else(|| unknown(g, name))?;
    let mut nodes = vec![last];
    loop {
        let here = &g.node(last).name;
        let users = g.users(last);
        let end = match users.as_slice() {
            [] => Some(format!("{here} has no user")),
            [one] => match g.node(*one).kind {
                Kind::Call(op) if goes_on(op.class) => None,
                Kind::Output => Some("then the output".into()),
                _ => Some(format!("then {}", g.node(*one).name)),
            },
            many => {
                let names: Vec<&str> = many.iter().map(|u| g.node(*u).name.as_str()).collect();
                Some(format!("{here} has {} users: {}", many.len(), names.join(", ")))
            }
        };
        match end {
            Some(end) => return Ok(Chain { nodes, end }),
            None => last = users[0],
        }
        nodes.push(last);
    }
}

fn goes_on(class: Class) -> bool {
    matches!(class, Class::Pointwise | Class::Norm | Class::Quantize | Class::Structural)
}

fn unknown(g: &Graph, name: &str) -> Error {
    let names = near(name, g.nodes().map(|(_, n)| n.name.as_str()));
    let hint = match names.as_slice() {
        [] => "cleave show lists them".to_string(),
        names => format!("near are {}", names.join(", ")),
    };
    Error::other(format!("no node '{name}'; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_decompose::{Table, decompose};

    fn chain(g: &Graph, name: &str) -> (String, String) {
        let c = of(g, name).expect("the node is there");
        (c.ops(g).join(" → "), c.end)
    }

    #[test]
    fn a_convolution_with_what_belongs_to_it() {
        let export = crate::demo::model().expect("the model is embedded");
        let empty = decompose(&export, &Table::named("empty").expect("a table")).expect("it can be decomposed");
        let (ops, end) = chain(&export, "conv2d");
        assert_eq!((ops.as_str(), end.as_str()), ("conv2d → batch_norm → relu", "then max_pool2d"));
        let (ops, _) = chain(&empty, "conv2d");
        assert_eq!(ops, "conv2d → _native_batch_norm_legit_no_training → getitem → relu");
        let (ops, end) = chain(&export, "max_pool2d");
        assert_eq!((ops.as_str(), end.as_str()), ("max_pool2d", "max_pool2d has 2 users: conv2d_1, add"));
        assert_eq!(chain(&export, "%linear").1, "then the output");
    }

    #[test]
    fn an_unknown_node_has_near_ones() {
        let export = crate::demo::model().expect("the model is embedded");
        let e = of(&export, "conv2").expect_err("no such node").to_string();
        assert_eq!(e, "no node 'conv2'; near are conv2d, conv2d_1, conv2d_2");
        assert_eq!(of(&export, "?").expect_err("no such node").to_string(), "no node '?'; cleave show lists them");
    }
}
