//! Small ONNX models, put together node by node.

use cleave_formats::onnx::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use cleave_formats::onnx::tensor::{code_of, proto_of};
use cleave_ir::{Graph, Tensor};
use cleave_numerics::DType;
use std::path::Path;

/// An attribute's value.
pub enum Attr {
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// Text.
    Text(&'static str),
    /// A tensor.
    Tensor(Tensor),
}

impl Attr {
    fn proto(&self, name: &str) -> AttributeProto {
        let a = AttributeProto { name: name.into(), ..Default::default() };
        match self {
            Attr::Int(i) => AttributeProto { r#type: 2, i: Some(*i), ..a },
            Attr::Ints(l) => AttributeProto { r#type: 7, ints: l.clone(), ..a },
            Attr::Float(f) => AttributeProto { r#type: 1, f: Some(*f), ..a },
            Attr::Text(s) => AttributeProto { r#type: 3, s: Some(s.as_bytes().to_vec().into()), ..a },
            Attr::Tensor(t) => AttributeProto { r#type: 4, t: Some(proto_of("", t)), ..a },
        }
    }
}

/// A model while it is put together.
pub struct Net {
    inputs: Vec<ValueInfoProto>,
    constants: Vec<TensorProto>,
    nodes: Vec<NodeProto>,
    opset: i64,
}

impl Net {
    /// A model with one f32 input `x` of these sizes; a word is a symbol.
    pub fn new(x: &str) -> Net {
        Net::typed(x, DType::F32)
    }

    /// [`Net::new`] with an input of another type.
    pub fn typed(x: &str, dtype: DType) -> Net {
        Net { inputs: vec![value("x", dtype, x)], constants: vec![], nodes: vec![], opset: 17 }
    }

    /// States another operator set.
    pub fn opset(mut self, opset: i64) -> Net {
        self.opset = opset;
        self
    }

    /// An initializer.
    pub fn init(mut self, name: &str, t: Tensor) -> Net {
        self.constants.push(proto_of(name, &t));
        self
    }

    /// A node without a name; inputs and outputs are words.
    pub fn node(self, op: &str, inputs: &str, outputs: &str, attrs: &[(&str, Attr)]) -> Net {
        self.named("", op, inputs, outputs, attrs)
    }

    /// A node with a name; `-` is an input that is absent.
    pub fn named(mut self, name: &str, op: &str, inputs: &str, outputs: &str, attrs: &[(&str, Attr)]) -> Net {
        let words = |s: &str| s.split_whitespace().map(|w| if w == "-" { "" } else { w }.to_string()).collect();
        self.nodes.push(NodeProto {
            name: name.into(),
            op_type: op.into(),
            input: words(inputs),
            output: words(outputs),
            attribute: attrs.iter().map(|(n, a)| a.proto(n)).collect(),
            ..Default::default()
        });
        self
    }

    /// The model's bytes-to-be, with these outputs.
    pub fn model(self, outputs: &str) -> ModelProto {
        let output = outputs.split_whitespace().map(|n| ValueInfoProto { name: n.into(), r#type: None }).collect();
        let (node, input) = (self.nodes, self.inputs);
        ModelProto {
            ir_version: 8,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: self.opset }],
            graph: Some(GraphProto { node, initializer: self.constants, input, output, ..Default::default() }),
            ..Default::default()
        }
    }

    /// The model as it is read.
    pub fn read(self, outputs: &str) -> Graph {
        let m = self.model(outputs);
        cleave_formats::onnx::read_model(Path::new("m.onnx"), &m).unwrap_or_else(|e| panic!("{e}"))
    }
}

fn value(name: &str, dtype: DType, sizes: &str) -> ValueInfoProto {
    let dim = |d: &str| DimensionProto {
        value: Some(d.parse().map_or(DimensionValue::DimParam(d.into()), DimensionValue::DimValue)),
    };
    let shape = Some(TensorShapeProto { dim: sizes.split_whitespace().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: code_of(dtype), shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..Default::default() }) }
}
