//! The protobuf messages of an ONNX file, by hand after `onnx.proto` (IR version 14).
//!
//! Fields that say nothing about an inference result (training, devices, documentation) are left out, and
//! skipped when a file has them. Bytes are slices of the buffer that was decoded, not copies.

use prost::bytes::Bytes;
use prost::{Message, Oneof};

/// A model.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Tool that wrote the model.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// The main graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Versions of the operator sets.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Free text by key.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Functions that nodes may call.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// A graph.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Calls.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs; up to IR version 3 the initializers among them.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Results.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Constants in sparse form.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// A call of an operator.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of argument values; an empty one is an optional argument left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of results.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's name; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator set; empty for ONNX's own.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which of several functions of one name.
    #[prost(string, tag = "8")]
    pub overload: String,
    /// What exporters note of it.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// What an attribute holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
#[allow(missing_docs, reason = "the variants are their own description")]
pub enum AttributeType {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    TypeProto = 13,
    TypeProtos = 14,
}

/// A named attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// In a function: the function's attribute that stands here.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    /// Which of the fields below holds the value.
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
    /// A float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A string.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A graph.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// A sparse tensor.
    #[prost(message, optional, tag = "22")]
    pub sparse_tensor: Option<SparseTensorProto>,
    /// Floats.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Strings.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
}

/// A named value with its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The value's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// The type of a value; one of the fields is set.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
    /// A sequence.
    #[prost(message, optional, tag = "4")]
    pub sequence_type: Option<OtherTypeProto>,
    /// A map.
    #[prost(message, optional, tag = "5")]
    pub map_type: Option<OtherTypeProto>,
    /// An optional value.
    #[prost(message, optional, tag = "9")]
    pub optional_type: Option<OtherTypeProto>,
}

/// A type that no tensor has; its parts are not read.
#[derive(Clone, PartialEq, Message)]
pub struct OtherTypeProto {}

/// The type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// Element type, a [`TensorProto::data_type`].
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Sizes, if the rank is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// Sizes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// One for each dimension.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One size.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// What is known of it.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// What is known of a size.
#[derive(Clone, PartialEq, Oneof)]
pub enum DimensionValue {
    /// A number.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// A name.
    #[prost(string, tag = "2")]
    DimParam(String),
}

/// A tensor's elements.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Sizes.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// Element type: 1 f32, 2 u8, 3 i8, …
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// f32 elements.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of types of at most 32 bits, each widened.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Strings.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// i64 elements.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The tensor's name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements of any type, little-endian.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// f64 elements.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// u32 and u64 elements.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Place in another file: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 if the elements are in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A tensor with few elements that are not zero.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// Those elements; its name is the constant's.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they lie: a number for each in row-major order, or one for each dimension.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Sizes of the whole.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// A key with a value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Version of an operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// The set; empty for ONNX's own.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Its version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A function that nodes call like an operator.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Parameters.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Results.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Attributes without a default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// The body.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Versions of the operator sets in the body.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The set that it belongs to.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with a default.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Which of several functions of one name.
    #[prost(string, tag = "13")]
    pub overload: String,
}
