//! `cleave compare`: two models on the same data.

use super::RunArgs;
use super::data::{ImageArgs, open};
use super::out::{Out, decibels, number, progress};
use crate::backend::{Backend, Batch, batch_of};
use crate::error::{Error, Result};
use crate::metrics::{Comparison, Similarity, top1};
use crate::model::{is_quantized, read_runnable};
use crate::pipeline::{dequantized, quantized_values};
use crate::table::Table;
use cleave_formats::data::read_labels;
use cleave_ir::{Graph, Kind, NodeId, Tensor};
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model that is taken to be right.
    a: PathBuf,
    /// The model that is compared with it.
    b: PathBuf,
    /// The data: a folder or file of .npy, .npz, images or .pb.
    #[arg(long)]
    data: PathBuf,
    /// Labels: an .npy, or a CSV of index,label.
    #[arg(long)]
    labels: Option<PathBuf>,
    /// Samples that are compared [default: all].
    #[arg(long, value_name = "N")]
    samples: Option<usize>,
    /// Compare the values of nodes that both models have under the same name.
    #[arg(long)]
    layers: bool,
    /// Fail if the least SQNR of the outputs is below this.
    #[arg(long, value_name = "DB")]
    min_sqnr: Option<f64>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let (g, h) = (read_runnable(&a.a)?, read_runnable(&a.b)?);
    if g.output_names.len() != h.output_names.len() || g.input_names.len() != h.input_names.len() {
        return Err(Error::other(format!(
            "the models do not compare: {} has inputs {:?} and outputs {:?}, {} has {:?} and {:?}",
            a.a.display(),
            g.input_names,
            g.output_names,
            a.b.display(),
            h.input_names,
            h.output_names
        )));
    }
    let data = open(&a.data, &g, &a.images)?;
    let samples = a.samples.unwrap_or(data.len());
    if samples > data.len() {
        return Err(Error::other(format!("--samples {samples}: {} has {}", a.data.display(), data.len())));
    }
    let truth = a.labels.as_deref().map(|p| read_labels(p, samples)).transpose()?;
    if let Some(t) = truth.as_ref().filter(|t| t.len() < samples) {
        return Err(Error::other(format!("{} labels for {samples} samples", t.len())));
    }
    let options = a.run.options()?;
    let mut left = Backend::new("cpu", &g, options)?;
    let mut right = Backend::new("cpu", &h, options)?;
    let pairs = if a.layers { shared_layers(&g, &h) } else { vec![] };
    if a.layers && pairs.is_empty() {
        let why = "the models have no value under the same name; compare with the file that the second was made from";
        return Err(Error::other(format!("--layers: {why}")));
    }
    let mut run = Comparing {
        graphs: [&g, &h],
        pairs,
        outputs: vec![Comparison::default(); g.output_names.len()],
        layers: IndexMap::new(),
        hits: [0; 2],
    };
    let step = match (batch_of(&g), batch_of(&h)) {
        (Batch::Free, Batch::Free) => 8,
        (Batch::Fixed(n), _) | (_, Batch::Fixed(n)) => n,
        _ => 1,
    };
    let bar = progress("comparing", samples);
    for start in (0..samples).step_by(step) {
        let rows = start..(start + step).min(samples);
        let inputs = data.batch(rows.clone())?;
        run.add(&mut left, &mut right, &inputs, truth.as_ref().map(|t| &t[rows.clone()]))?;
        bar.set_position(rows.end as u64);
    }
    bar.finish_and_clear();
    report(a, out, &g, samples, truth.is_some(), &run)
}

/// A node of each graph whose values are compared; the second may be the levels of the first.
#[derive(Clone, Copy)]
struct Pair {
    a: NodeId,
    b: NodeId,
    levels: bool,
}

struct Comparing<'g> {
    graphs: [&'g Graph; 2],
    pairs: Vec<Pair>,
    outputs: Vec<Comparison>,
    layers: IndexMap<String, Comparison>,
    hits: [usize; 2],
}

impl Comparing<'_> {
    fn add(&mut self, left: &mut Backend, right: &mut Backend, inputs: &[Tensor], truth: Option<&[i64]>) -> Result<()> {
        let (la, lb): (Vec<_>, Vec<_>) = self.pairs.iter().map(|p| (p.a, p.b)).unzip();
        let mut seen: IndexMap<NodeId, Tensor> = IndexMap::new();
        let x = left.run(inputs, &la, &mut |id, t| {
            seen.insert(id, t.clone());
        })?;
        let (graphs, layers) = (self.graphs, &mut self.layers);
        let by_right: IndexMap<NodeId, Pair> = self.pairs.iter().map(|p| (p.b, *p)).collect();
        let mut wrong = None;
        let y = right.run(inputs, &lb, &mut |id, t| {
            let Some((pair, value)) = by_right.get(&id).and_then(|p| Some((p, seen.get(&p.a)?))) else { return };
            let t = if pair.levels { dequantized(graphs[1], id, t) } else { t.clone() };
            let entry = layers.entry(graphs[0].node(pair.a).name.clone()).or_default();
            wrong = wrong.take().or(entry.add(value, &t).err());
        })?;
        if let Some(why) = wrong {
            return Err(Error::other(format!("layers do not compare: {why}")));
        }
        for (c, (x, y)) in self.outputs.iter_mut().zip(x.iter().zip(&y)) {
            c.add(x, y).map_err(|why| Error::other(format!("outputs do not compare: {why}")))?;
        }
        if let Some(truth) = truth {
            for (hits, t) in self.hits.iter_mut().zip([&x[0], &y[0]]) {
                let v = t.to_f32();
                let width = (v.len() / truth.len().max(1)).max(1);
                *hits += v.chunks(width).zip(truth).filter(|(row, l)| top1(row) as i64 == **l).count();
            }
        }
        Ok(())
    }
}

/// Values that both graphs have under one name: as levels where the second quantizes them, else as floats.
fn shared_layers(g: &Graph, h: &Graph) -> Vec<Pair> {
    let levels = quantized_values(g, h);
    let float = |g: &Graph, id: NodeId| g.node(id).meta.as_tensor().is_some_and(|m| m.dtype.is_float());
    let calls = g.nodes().filter(|(id, n)| matches!(n.kind, Kind::Call(_)) && float(g, *id));
    let pair = |id: NodeId, name: &str| match levels.get(&id) {
        Some(q) => Some(Pair { a: id, b: *q, levels: true }),
        None if is_quantized(h) => None,
        None => h.find(name).filter(|o| float(h, *o)).map(|b| Pair { a: id, b, levels: false }),
    };
    calls.filter_map(|(id, n)| pair(id, &n.name)).collect()
}

fn figures(name: &str, s: &Similarity) -> Value {
    json!({"name": name, "sqnr_db": number(s.sqnr_db), "centred_sqnr_db": number(s.centred_sqnr_db), "cosine": number(s.cosine), "max_abs": number(s.max_abs)})
}

fn report(a: &Args, out: &mut Out, g: &Graph, samples: usize, labelled: bool, run: &Comparing<'_>) -> Result<bool> {
    let mut table = Table::new(&["output", ">SQNR", ">centred", ">cosine", ">max |a-b|", ">top-1 equal"]);
    let mut rows = vec![];
    let mut least = f64::INFINITY;
    for (name, c) in g.output_names.iter().zip(&run.outputs) {
        let s = c.finish();
        least = if s.sqnr_db >= least { least } else { s.sqnr_db };
        let cells = [
            decibels(s.sqnr_db),
            decibels(s.centred_sqnr_db),
            format!("{:.6}", s.cosine),
            format!("{:.4e}", s.max_abs),
            format!("{:.1} %", s.top1_agreement * 100.0),
        ];
        table.row([name.clone()].into_iter().chain(cells));
        rows.push(figures(name, &s));
    }
    out.say(format!("{samples} samples\n{table}"));
    let share = |hits: usize| hits as f64 / samples.max(1) as f64;
    if labelled {
        out.say(format!(
            "top-1 of {}: {:.2} %, of {}: {:.2} %",
            a.a.display(),
            share(run.hits[0]) * 100.0,
            a.b.display(),
            share(run.hits[1]) * 100.0
        ));
    }
    let layers: Vec<Value> = run.layers.iter().map(|(n, c)| figures(n, &c.finish())).collect();
    if a.layers {
        let mut t = Table::new(&["layer", ">SQNR", ">max |a-b|"]);
        for (n, c) in &run.layers {
            let s = c.finish();
            t.row([n.clone(), decibels(s.sqnr_db), format!("{:.4e}", s.max_abs)]);
        }
        out.say(t.to_string());
    }
    let agreement = run.outputs.first().map_or(0.0, |c| c.finish().top1_agreement);
    out.document(&json!({
        "samples": samples, "outputs": rows, "layers": layers, "top1_agreement": agreement,
        "top1_a": labelled.then(|| share(run.hits[0])), "top1_b": labelled.then(|| share(run.hits[1])),
    }))?;
    Ok(a.min_sqnr.is_none_or(|m| least >= m))
}
