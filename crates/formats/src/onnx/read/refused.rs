//! Operators that are known and not read, with the reason.

const SEQUENCE: &str = "sequences are not supported, only tensors";
const OPTIONAL: &str = "optional values are not supported, only tensors";
const STRING: &str = "strings are not supported";
const RANDOM: &str = "random numbers are not supported: no two runtimes draw the same";
const TREE: &str = "operators of classical machine learning are not supported";
const TRAINING: &str = "training is not supported";

const REASONS: &[(&str, &str)] = &[
    ("SequenceAt", SEQUENCE),
    ("SequenceConstruct", SEQUENCE),
    ("SequenceEmpty", SEQUENCE),
    ("SequenceErase", SEQUENCE),
    ("SequenceInsert", SEQUENCE),
    ("SequenceLength", SEQUENCE),
    ("SequenceMap", SEQUENCE),
    ("SplitToSequence", SEQUENCE),
    ("ConcatFromSequence", SEQUENCE),
    ("Optional", OPTIONAL),
    ("OptionalGetElement", OPTIONAL),
    ("OptionalHasElement", OPTIONAL),
    ("RegexFullMatch", STRING),
    ("StringConcat", STRING),
    ("StringNormalizer", STRING),
    ("StringSplit", STRING),
    ("TfIdfVectorizer", STRING),
    ("Bernoulli", RANDOM),
    ("Multinomial", RANDOM),
    ("RandomNormal", RANDOM),
    ("RandomNormalLike", RANDOM),
    ("RandomUniform", RANDOM),
    ("RandomUniformLike", RANDOM),
    ("ImageDecoder", "encoded images are not supported"),
    ("Gradient", TRAINING),
];

/// Why an operator is not read.
pub fn why(domain: &str, op: &str) -> String {
    let known = match domain {
        "" | "ai.onnx" => REASONS.iter().find(|(name, _)| *name == op).map(|(_, why)| *why),
        "ai.onnx.ml" => Some(TREE),
        "ai.onnx.training" | "ai.onnx.preview.training" => Some(TRAINING),
        _ => None,
    };
    match (known, domain) {
        (Some(why), _) => why.into(),
        (None, "") => "unknown operator".into(),
        (None, domain) => format!("unknown operator of '{domain}'"),
    }
}
