use super::*;
use crate::read_pt2;
use cleave_ir::{Tensor, text};
use std::path::PathBuf;

fn fashion(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion").join(name)
}

const SRC: &str = r#"graph(%x "in put": f32[N, 2]) where 1 <= N <= 9 with quantize = "divide" {
  %w = param "w": f32[2, 2]
  %v = buffer "v": f32[2, 2]
  %q = const "q": i8[3]
  %linear = aten.linear(%x, %w): f32[N, 2]
  %linear_1 = aten.linear(%linear, %v): f32[N, 2]
  %view = aten.view(%linear_1, [<2*N>]): f32[2*N]
  %clamp = aten.clamp(%view, 0.1): f32[2*N]
  %cond = higher_order.cond(true, graph(%a: f32[n]) {
    %c = const "c": f32[1]
    %mul = aten.mul.Tensor(%a, %c): f32[n]
    return %mul
  }, graph(%a: f32[n]) {
    %relu = aten.relu(%a): f32[n]
    return %relu
  }, [%clamp]): (f32[2*N])
  %item = getitem(%cond, 0): f32[2*N]
  %quant = quantized_decomposed.quantize_per_tensor(%clamp, 0.5, 3, 0, 255, u8): u8[2*N]
  return %quant "out.0", %clamp
}
"#;

fn sample() -> Graph {
    let mut g = text::parse(SRC).unwrap();
    let w = Tensor::new(&[2, 2], vec![1f32, 2., 3., 4.]);
    g.constants.insert("w".into(), w.clone());
    g.constants.insert("v".into(), w);
    g.constants.insert("q".into(), Tensor::new(&[3], vec![-1i8, 0, 1]));
    g
}

#[test]
fn a_graph_comes_back_with_names_constants_ties_and_provenance() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.clv");
    let mut g = sample();
    let id = g.find("linear").unwrap();
    g.set_origin(id, cleave_ir::Origin { sources: vec!["fc/1".into()], module: "fc".into() });
    let extra = IndexMap::from([("quantizer".to_string(), "cpu".to_string())]);
    write_clv(&path, &g, &extra).unwrap();
    let (back, kept) = read_clv(&path).unwrap();
    assert_eq!(back.to_string(), SRC);
    assert_eq!(kept, extra);
    assert_eq!(back.constants, g.constants);
    assert!(back.constants["w"].to_bytes().as_ptr() == back.constants["v"].to_bytes().as_ptr(), "tied");
    assert_eq!(back.constants["q"].to_bytes().as_ptr() as usize % 64, 0);
    assert_eq!(back.node(back.find("linear").unwrap()).origin.module, "fc");
    let first = std::fs::read(&path).unwrap();
    write_clv(&path, &back, &kept).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first, "the same graph gives the same bytes");
}

#[test]
fn a_network_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.clv");
    let g = read_pt2(&fashion("tiny_fashion.pt2")).unwrap();
    write_clv(&path, &g, &IndexMap::new()).unwrap();
    let (back, _) = read_clv(&path).unwrap();
    assert_eq!((back.to_string(), &back.constants), (g.to_string(), &g.constants));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.clv");
    write_clv(&path, &sample(), &IndexMap::new()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let error = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read_clv(&path).map(|(g, _)| g.to_string()).map_err(|e| e.to_string())
    };
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        match error(&bytes) {
            Err(e) => assert!(e.starts_with(&path.display().to_string()), "{e}"),
            // Only the zeros between sections are not part of the model.
            Ok(text) => assert!(text == SRC && whole[at] == 0, "byte {at}"),
        }
    }
    for end in 0..whole.len() {
        assert!(error(&whole[..end]).is_err(), "cut at {end}");
    }
    let mut newer = header(&[], 64);
    newer[8] = 3;
    let hash = xxh3_64(&newer[..40]);
    newer[40..48].copy_from_slice(&hash.to_le_bytes());
    assert!(
        error(&newer)
            .unwrap_err()
            .ends_with("a .clv file of version 3, expected 2; quantize the model again with this version of Cleave")
    );
}

#[test]
fn metadata_that_lies_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.clv");
    let lie = |f: &dyn Fn(&mut Model)| {
        let (mut model, tensors) = store::store(&sample(), &IndexMap::new()).map(|(m, t)| (m, t.len())).unwrap();
        assert_eq!(tensors, 3);
        f(&mut model);
        let data = codec::encode(&model).unwrap();
        let mut bytes = header(&data, 0).to_vec();
        bytes.extend_from_slice(&data);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes.extend([1f32, 2., 3., 4.].iter().flat_map(|v| v.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes.extend([255, 0, 1]);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes.extend([0; 4]);
        let size = bytes.len() as u64;
        bytes[..64].copy_from_slice(&header(&data, size));
        std::fs::write(&path, bytes).unwrap();
        read_clv(&path).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(lie(&|_| {}), Ok(()));
    assert!(lie(&|m| m.graphs[2].constants[0].shape[0] = u64::MAX).unwrap_err().contains("constant 'w'"));
    assert!(lie(&|m| m.graphs[2].constants[0].section = 9).unwrap_err().contains("section 9 of 3"));
    assert!(lie(&|m| m.sections[0].offset = u64::MAX - 3).unwrap_err().contains("lies outside"));
    assert!(lie(&|m| m.ops[0] = "aten.none".into()).unwrap_err().contains("unknown op 'aten.none'"));
    assert!(lie(&|m| m.graphs[2].nodes[2].name = "x".into()).unwrap_err().contains("the name is taken"));
    let forward = |m: &mut Model| m.graphs[2].nodes[4].args[0] = mirror::StoredArg::One(mirror::Atom::Node(7));
    assert!(lie(&forward).unwrap_err().contains("does not stand before"));
    assert!(lie(&|m| m.graphs[2].input_names.clear()).unwrap_err().contains("input names"));
    assert!(lie(&|m| m.graphs.clear()).unwrap_err().contains("there is no graph"));
    let own = |m: &mut Model| {
        let at = m.graphs[2].nodes.iter_mut().flat_map(|n| &mut n.args);
        at.filter(|a| matches!(a, mirror::StoredArg::One(mirror::Atom::Graph(_)))).for_each(|a| {
            *a = mirror::StoredArg::One(mirror::Atom::Graph(2));
        });
    };
    assert!(lie(&own).unwrap_err().contains("argument graph 2 does not stand before"));
}
