//! Stages of a graph drawn side by side, as SVG or as a page.
//!
//! Ops in focus are filled, what the next stage no longer has is dashed, what the stage before did not have is outlined,
//! matching nodes stand in one row, and what is left out is a mark. [`Drawing`] has the geometry; [`Drawing::svg`] and
//! [`Drawing::html`] write it. The same graphs give the same bytes.
//!
//! ```
//! use cleave::draw::{self, Options, Stage};
//! use cleave_decompose::{Table, decompose};
//!
//! let export = cleave::demo::model()?;
//! let empty = decompose(&export, &Table::named("empty")?)?;
//! let options = Options { focus: vec!["conv2d".into(), "batch_norm".into(), "relu".into()], hops: 0 };
//! let drawing = draw::draw(&[Stage::new("export", &export), Stage::new("empty", &empty)], &options)?;
//! let gone = drawing.boxes().filter(|b| b.gone).map(|b| b.op.as_str()).collect::<Vec<_>>();
//! assert_eq!(gone, ["batch_norm"; 4]);
//! assert!(drawing.svg().starts_with("<svg"));
//! # Ok::<(), cleave::Error>(())
//! ```

mod boxes;
mod html;
mod layered;
mod pairing;
mod scene;
mod select;
mod svg;

use crate::error::{Error, Result};
use cleave_ir::{Graph, NodeId};

/// A graph to draw, and what is said of it.
#[derive(Clone, Debug)]
pub struct Stage<'a> {
    /// What stands above it.
    pub title: String,
    /// The graph.
    pub graph: &'a Graph,
    /// A comment for each node, or none at all.
    pub comments: Vec<Option<String>>,
    /// Nodes that are drawn as if not in focus.
    plain: Vec<NodeId>,
    /// What the legend says of such nodes.
    plain_means: &'static str,
}

impl<'a> Stage<'a> {
    /// A graph under a title.
    pub fn new(title: &str, graph: &'a Graph) -> Stage<'a> {
        Stage { title: title.into(), graph, comments: vec![], plain: vec![], plain_means: "not in focus" }
    }

    /// With a comment for each node.
    pub fn with_comments(self, comments: Vec<Option<String>>) -> Stage<'a> {
        Stage { comments, ..self }
    }

    /// With nodes that are not filled, and what that means for the legend.
    pub fn plain(self, nodes: impl Iterator<Item = NodeId>, means: &'static str) -> Stage<'a> {
        Stage { plain: nodes.collect(), plain_means: means, ..self }
    }

    fn comment(&self, id: NodeId) -> Option<&str> {
        self.comments.get(id.index())?.as_deref()
    }
}

/// What is drawn.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ops in focus by bare name, nodes as `%name` (see [`crate::focus`]); none for all.
    pub focus: Vec<String>,
    /// How many edges away from an op in focus a node may lie to be drawn.
    pub hops: usize,
}

/// A node, or a mark for what is left out. Lengths are in pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct Box {
    /// The node's name; of a mark, the names of the nodes left out.
    pub name: String,
    /// The op's bare name, `input`, `output`, or empty for a mark.
    pub op: String,
    /// The op's class, `input`, `output` or `mark`.
    pub class: &'static str,
    /// Lines of text: the op, then what is said of it.
    pub lines: Vec<String>,
    /// How many of the lines, counted from the end, are the stage's comment.
    pub comments: usize,
    /// The node in the text form.
    pub text: String,
    /// Whether the op is in focus.
    pub focus: bool,
    /// Whether the next stage no longer has it.
    pub gone: bool,
    /// Whether the stage before did not have it.
    pub new: bool,
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Type and shape of its value, written below it.
    pub label: Option<String>,
}

impl Box {
    /// Whether it marks what is left out.
    pub fn is_mark(&self) -> bool {
        self.class == "mark"
    }
}

/// An edge: vertical lines and the curves between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The column's box that it comes from.
    pub from: usize,
    /// The box that it leads to.
    pub to: usize,
    /// Ends of vertical lines, from the top: the 1st and 2nd point, the 3rd and 4th, and so on.
    pub points: Vec<(f64, f64)>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// What stands above it.
    pub title: String,
    /// A line below the title.
    pub subtitle: String,
    /// Left edge.
    pub x: f64,
    /// Width.
    pub width: f64,
    /// In a topological order.
    pub boxes: Vec<Box>,
    /// Between them.
    pub edges: Vec<Edge>,
    /// How often each op is called, by name.
    pub ops: Vec<(String, usize)>,
}

/// Stages with the places of all that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// Of the whole.
    pub width: f64,
    /// Of the whole, without the legend.
    pub height: f64,
    /// A stage each.
    pub columns: Vec<Column>,
    /// What letters in shapes stand for.
    pub sizes: Vec<String>,
    /// What boxes that are not filled mean.
    pub plain_means: &'static str,
}

impl Drawing {
    /// Boxes of all stages.
    pub fn boxes(&self) -> impl Iterator<Item = &Box> {
        self.columns.iter().flat_map(|c| &c.boxes)
    }

    /// Nodes drawn, marks apart.
    pub fn nodes(&self) -> usize {
        self.boxes().filter(|b| !b.is_mark()).count()
    }

    /// As an SVG image that needs nothing besides itself.
    pub fn svg(&self) -> String {
        svg::image(self)
    }

    /// As a page that needs nothing besides itself: the drawing, to be moved and searched, and how often each stage
    /// calls each op.
    pub fn html(&self, title: &str) -> String {
        html::page(self, title)
    }
}

/// Draws stages side by side.
///
/// # Errors
/// No stage, or an op in focus that no stage calls.
pub fn draw(stages: &[Stage<'_>], options: &Options) -> Result<Drawing> {
    if stages.is_empty() {
        return Err(Error::other("there is no stage to draw"));
    }
    let graphs: Vec<&Graph> = stages.iter().map(|s| s.graph).collect();
    let selection = select::select(&graphs, &options.focus, options.hops)?;
    Ok(scene::arrange(stages, &selection))
}
