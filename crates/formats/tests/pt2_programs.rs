//! Programs made by hand: what must be tolerated, and what is refused by name.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_formats::read_pt2;
use cleave_ir::Graph;
use serde_json::{Value, json};
use std::io::Write;

/// A program in the making: one input `x` of f32[2, 3, 4, 4].
struct Made {
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    nodes: Vec<Value>,
    tensors: serde_json::Map<String, Value>,
    sizes: serde_json::Map<String, Value>,
    spec: String,
    /// Constants of one element: their entry in the table and their byte.
    constants: Vec<(&'static str, i64, u8)>,
}

impl Made {
    fn new() -> Made {
        let mut m = Made {
            inputs: vec![],
            outputs: vec![],
            nodes: vec![],
            tensors: serde_json::Map::new(),
            sizes: serde_json::Map::new(),
            spec: String::new(),
            constants: vec![],
        };
        m.inputs.push(json!({"user_input": {"arg": {"as_tensor": {"name": "x"}}}}));
        m.state("x", 7, &[2, 3, 4, 4]);
        m
    }

    fn state(&mut self, name: &str, dtype: i64, shape: &[i64]) {
        let sizes: Vec<Value> = shape.iter().map(|n| json!({ "as_int": n })).collect();
        self.tensors.insert(name.into(), json!({"dtype": dtype, "sizes": sizes, "strides": []}));
    }

    fn constant(mut self, name: &'static str, dtype: i64, byte: u8) -> Made {
        self.inputs.insert(0, json!({"buffer": {"arg": {"name": name}, "buffer_name": name, "persistent": true}}));
        self.constants.push((name, dtype, byte));
        self.state(name, dtype, &[]);
        self
    }

    /// A call with arguments by name and one result, which has the input's type and shape.
    fn call(mut self, target: &str, args: &[(&str, Value)], name: &str) -> Made {
        self.state(name, 7, &[2, 3, 4, 4]);
        self.node(target, args, json!([{"as_tensor": {"name": name}}]), name)
    }

    fn node(mut self, target: &str, args: &[(&str, Value)], outputs: Value, name: &str) -> Made {
        let inputs: Vec<Value> = args.iter().map(|(n, a)| json!({"name": n, "arg": a, "kind": 1})).collect();
        let target = if target.starts_with('_') { target.to_string() } else { format!("torch.ops.{target}") };
        self.nodes.push(json!({"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}, "name": name}));
        self
    }

    fn gives(mut self, arg: Value) -> Made {
        self.outputs.push(json!({"user_output": {"arg": arg}}));
        self
    }

    fn read(self) -> Result<Graph, String> {
        let program = json!({
            "graph_module": {
                "graph": {"inputs": [], "outputs": [], "nodes": self.nodes, "tensor_values": self.tensors, "sym_int_values": self.sizes},
                "signature": {"input_specs": self.inputs, "output_specs": self.outputs},
                "module_call_graph": [{"fqn": "", "signature": {"out_spec": self.spec}}],
            },
            "schema_version": {"major": 8, "minor": 20},
        });
        let mut config = serde_json::Map::new();
        let mut z = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
        let mut add = |name: &str, bytes: &[u8]| {
            z.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            z.write_all(bytes).unwrap();
        };
        for (name, dtype, byte) in &self.constants {
            let meta =
                json!({"dtype": dtype, "sizes": [], "strides": [], "storage_offset": {"as_int": 0}, "layout": 7});
            config.insert((*name).into(), json!({"path_name": name, "use_pickle": false, "tensor_meta": meta}));
            add(&format!("m/data/weights/{name}"), &[*byte, 0, 0, 0, 0, 0, 0, 0]);
        }
        add("m/data/weights/model_weights_config.json", json!({ "config": config }).to_string().as_bytes());
        add("m/models/model.json", program.to_string().as_bytes());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.pt2");
        std::fs::write(&path, z.finish().unwrap().into_inner()).unwrap();
        let strip = |e: cleave_formats::FormatError| e.to_string().replacen(&format!("{}: ", path.display()), "", 1);
        let g = read_pt2(&path).map_err(strip)?;
        cleave_ir::verify::verify(&g, cleave_ir::Levels::ALL).map_err(|e| e.to_string())?;
        Ok(g)
    }
}

fn tensor(name: &str) -> Value {
    json!({"as_tensor": {"name": name}})
}

#[test]
fn what_has_no_effect_is_read_as_it_is() {
    let g = Made::new()
        .node(
            "aten._assert_tensor_metadata.default",
            &[
                ("a", tensor("x")),
                ("dtype", json!({"as_scalar_type": 7})),
                ("device", json!({"as_device": {"type": "cpu", "index": null}})),
                ("layout", json!({"as_layout": 7})),
            ],
            json!([]),
            "_assert_tensor_metadata_default",
        )
        .call("aten.lift_fresh_copy.default", &[("self", tensor("x"))], "lift_fresh_copy")
        .call("aten.detach_.default", &[("self", tensor("lift_fresh_copy"))], "detach_")
        .call("aten.alias.default", &[("self", tensor("detach_"))], "alias")
        .call(
            "aten.clone.default",
            &[("self", tensor("alias")), ("memory_format", json!({"as_memory_format": 2}))],
            "clone",
        )
        .gives(tensor("clone"))
        .read()
        .unwrap();
    let want = r#"graph(%x: f32[2, 3, 4, 4]) {
  %_assert_tensor_metadata_default = aten._assert_tensor_metadata(%x, none, none, f32, "cpu", "strided"): none
  %lift_fresh_copy = aten.lift_fresh_copy(%x): f32[2, 3, 4, 4]
  %detach_ = aten.detach_(%lift_fresh_copy): f32[2, 3, 4, 4]
  %alias = aten.alias(%detach_): f32[2, 3, 4, 4]
  %clone = aten.clone(%alias, "channels_last"): f32[2, 3, 4, 4]
  return %clone
}
"#;
    assert_eq!(g.to_string(), want);
}

#[test]
fn writes_to_buffers_are_named() {
    let mut m = Made::new();
    m.inputs.insert(0, json!({"buffer": {"arg": {"name": "b_n"}, "buffer_name": "n", "persistent": true}}));
    m.constants.push(("n", 5, 7));
    m.state("b_n", 5, &[]);
    m.outputs.push(json!({"buffer_mutation": {"arg": {"name": "add"}, "buffer_name": "n"}}));
    m.state("add", 5, &[]);
    let out = json!([{"as_tensor": {"name": "add"}}]);
    let m = m.node("aten.add.Tensor", &[("self", tensor("b_n")), ("other", json!({"as_int": 1}))], out, "add");
    let mut m = m.call("aten.relu.default", &[("self", tensor("x"))], "relu").gives(tensor("relu"));
    m.state("add_", 5, &[]);
    let out = json!([{"as_tensor": {"name": "add_"}}]);
    let g = m
        .node("aten.add_.Tensor", &[("self", tensor("b_n")), ("other", json!({"as_int": 1}))], out, "add_")
        .read()
        .unwrap();
    assert_eq!(g.metadata["dropped"], "write to buffer n");
    assert_eq!(g.output_names, ["relu"]);
}

#[test]
fn inputs_and_results_that_are_plain_values_are_part_of_the_program() {
    let mut m = Made::new();
    m.inputs.push(json!({"constant_input": {"name": "scale", "value": {"as_float": 0.5}}}));
    m.inputs.push(json!({"user_input": {"arg": {"as_none": true}}}));
    m.spec = json!([1, {"type": "builtins.tuple", "context": "null", "children_spec": [
        {"type": null, "context": null, "children_spec": []},
        {"type": "collections.OrderedDict", "context": "[\"boxes\", 7]", "children_spec": [
            {"type": "builtins.list", "context": "null", "children_spec": [{"type": null, "context": null, "children_spec": []}]},
            {"type": null, "context": null, "children_spec": []},
        ]},
        {"type": null, "context": null, "children_spec": []},
    ]}]).to_string();
    let g = m
        .call("aten.relu.default", &[("self", tensor("x"))], "relu")
        .call("aten.abs.default", &[("self", tensor("x"))], "abs_1")
        .gives(tensor("relu"))
        .gives(tensor("abs_1"))
        .gives(tensor("relu"))
        .gives(json!({"as_int": 3}))
        .read()
        .unwrap();
    assert_eq!(g.input_names, ["x"]);
    assert_eq!(g.output_names, ["relu", "1.boxes.0", "1.7"]);
    assert_eq!(g.metadata["dropped"], "output 3");
}

#[test]
fn sizes_are_results_and_arguments() {
    let mut m = Made::new();
    m.sizes.insert("size".into(), json!({"as_int": 2}));
    let args = [("self", tensor("x")), ("dim", json!({"as_int": 0}))];
    let g = m
        .node("aten.sym_size.int", &args, json!([{"as_sym_int": {"as_name": "size"}}]), "size")
        .call(
            "aten.view.default",
            &[
                ("self", tensor("x")),
                ("size", json!({"as_sym_ints": [{"as_name": "size"}, {"as_int": 3}, {"as_int": 4}, {"as_int": 4}]})),
            ],
            "view",
        )
        .gives(tensor("view"))
        .gives(json!({"as_sym_int": {"as_name": "size"}}))
        .read()
        .unwrap();
    assert!(g.to_string().ends_with("  return %view, %size\n}\n"), "{g}");
}

#[test]
fn numbers_that_json_lacks_and_results_that_nobody_wants_are_read() {
    let mut m = Made::new();
    m.state("values", 7, &[2, 3, 4]);
    let outputs = json!([{"as_tensor": {"name": "values"}}, {"as_tensor": {"name": "max_1_unused_1"}}]);
    let g = m
        .node("aten.max.dim", &[("self", tensor("x")), ("dim", json!({"as_int": -1}))], outputs, "max_1")
        .call(
            "aten.clamp.default",
            &[
                ("self", tensor("x")),
                ("min", json!({"as_float": "-Infinity"})),
                ("max", json!({"as_float": "Infinity"})),
            ],
            "clamp",
        )
        .call("aten.add.Tensor", &[("self", tensor("clamp")), ("other", json!({"as_float": "NaN"}))], "add")
        .gives(tensor("add"))
        .gives(tensor("values"))
        .read()
        .unwrap();
    for line in [
        "%max_1 = aten.max.dim(%x, -1): (f32[2, 3, 4], i64[2, 3, 4])\n  %values = getitem(%max_1, 0)",
        "aten.clamp(%x, -inf, inf)",
        "aten.add.Tensor(%clamp, NaN)",
    ] {
        assert!(g.to_string().contains(line), "{line}\n{g}");
    }
    assert_eq!(g.len(), 6);
}

#[test]
fn what_cannot_be_read_is_named() {
    let error = |m: Made| m.read().unwrap_err();
    let mut m = Made::new();
    m.inputs.push(
        json!({"custom_obj": {"arg": {"name": "obj_tok", "class_fqn": "foo::Tokenizer"}, "custom_obj_name": "tok"}}),
    );
    assert_eq!(error(m), "node 'obj_tok': input of kind 'custom_obj' cannot be read");
    let mut m = Made::new();
    m.inputs.push(json!({"token": {"arg": {"name": "token"}}}));
    assert_eq!(error(m), "node 'token': input of kind 'token' cannot be read");
    let mut m = Made::new();
    m.outputs.push(json!({"loss_output": {"arg": {"name": "x"}}}));
    assert_eq!(error(m), "output of kind 'loss_output' cannot be read");
    let m = Made::new().call(
        "aten.relu.default",
        &[("self", json!({"as_custom_obj": {"name": "o", "class_fqn": "f"}}))],
        "relu",
    );
    assert_eq!(
        error(m),
        "node 'relu' (aten.relu.default): argument 'self': a value of kind 'as_custom_obj' cannot be read"
    );
    let m =
        Made::new().call("aten.relu.default", &[("self", json!({"as_complex": {"real": 1.0, "imag": 2.0}}))], "relu");
    assert_eq!(
        error(m),
        "node 'relu' (aten.relu.default): argument 'self': a value of kind 'as_complex' cannot be read"
    );
    let m = Made::new().gives(json!({"as_custom_obj": {"name": "o", "class_fqn": "f"}}));
    assert_eq!(error(m), "node 'o': output that is no tensor of the program");
    let m = Made::new().call("mylib.frob.default", &[("self", tensor("x"))], "frob");
    assert_eq!(error(m), "node 'frob' (mylib.frob.default): unknown op");
    let body = json!({"inputs": [tensor("x")], "outputs": [tensor("y")], "nodes": [
        {"target": "torch.ops.mylib.deep.default", "inputs": [], "outputs": [tensor("y")], "metadata": {}, "name": "y"}
    ], "tensor_values": {}});
    let graph = json!({"as_graph": {"name": "g", "graph": body}});
    let m = Made::new().node(
        "higher_order.cond",
        &[("", tensor("x")), ("", graph.clone()), ("", graph)],
        json!([tensor("y")]),
        "cond",
    );
    assert_eq!(error(m), "node 'y' (mylib.deep.default): unknown op (and at 1 more nodes)");
    let m = Made::new().node("higher_order.map_impl", &[], json!([]), "map_impl");
    assert_eq!(error(m), "node 'map_impl' (higher_order.map_impl): unknown op");
}

#[test]
fn what_observes_is_read_without_its_observer_or_refused() {
    let int = |i: i64| json!({ "as_int": i });
    let fused = |on: u8, quantizes: u8| {
        let args = [
            ("self", tensor("x")),
            ("observer_on", tensor("o")),
            ("fake_quant_on", tensor("q")),
            ("running_min", tensor("o")),
            ("running_max", tensor("o")),
            ("scale", tensor("s")),
            ("zero_point", tensor("z")),
            ("averaging_const", json!({ "as_float": 0.01 })),
            ("quant_min", int(0)),
            ("quant_max", int(255)),
            ("ch_axis", int(-1)),
        ];
        let m = Made::new().constant("o", 1, on).constant("q", 1, quantizes).constant("s", 1, 1).constant("z", 1, 3);
        m.call("aten.fused_moving_avg_obs_fake_quant.default", &args, "y").gives(tensor("y"))
    };
    let g = fused(0, 1).read().unwrap();
    let (calls, y) = (g.op_counts(), g.node(g.results()[0]));
    assert_eq!(calls.keys().copied().collect::<Vec<_>>(), ["aten.fake_quantize_per_tensor_affine.tensor_qparams"]);
    assert_eq!((y.name.as_str(), g.output_names.as_slice()), ("y", &["y".to_string()][..]));
    assert_eq!(fused(0, 0).read().unwrap().op_counts().len(), 0);
    let e = fused(1, 1).read().unwrap_err();
    assert!(e.contains("node 'y' (aten.fused_moving_avg_obs_fake_quant.default): its observer is on"), "{e}");
    assert!(e.contains("convert_pt2e before export"), "{e}");
}
