//! Quantizer files: what is read, and what is refused where.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_quantize::{BUILT_IN, Quantizer, TomlQuantizer};

#[test]
fn every_built_in_file_is_read() {
    for (name, _) in BUILT_IN {
        let q = TomlQuantizer::load(name).unwrap();
        assert_eq!((q.name(), q.divides()), (name, matches!(name, "arm" | "cpu" | "dynamic" | "onnx" | "openvino")));
        assert!(!q.doc().is_empty() && q.patterns().len() > 2);
    }
}

const HEAD: &str = "[quantizer]\nname = \"mine\"\n[spec.a]\ndtype = \"u8\"\nscheme = \"per_tensor_affine\"\n";

fn error(rest: &str) -> String {
    TomlQuantizer::parse(&format!("{HEAD}{rest}"), "mine.toml").unwrap_err().to_string()
}

#[test]
fn errors_name_file_line_and_column() {
    let pattern = |body: &str| error(&format!("[[pattern]]\nname = \"p\"\n{body}\n"));
    assert_eq!(
        pattern("match = \"relu(convv(x))\"\noutput = \"a\""),
        "mine.toml:8:15: unknown op, class or alternative 'convv'"
    );
    assert_eq!(pattern("match = \"relu(x)\"\noutput = \"b\""), "mine.toml:9:10: unknown spec 'b'; there are a");
    assert_eq!(
        pattern("match = \"relu(x)\"\ninputs = { y = \"a\" }"),
        "mine.toml:9:16: the pattern captures no 'y', only x"
    );
    assert!(
        pattern("match = \"relu(x)\"\nwhere = [\"constnt(x)\"]\noutput = \"a\"")
            .starts_with("mine.toml:9:11: unknown predicate 'constnt'")
    );
    assert!(pattern("match = \"relu(x)\"\noutptu = \"a\"").starts_with("mine.toml:9:1: unknown field `outptu`"));
    assert!(pattern("match = \"relu(x)\"").contains("neither what is quantized nor float"));
    assert!(error("[spec.b]\ndtype = \"u9\"\nscheme = \"fixed\"").starts_with("mine.toml:7:9: 'u9': expected u8"));
    assert!(
        error("[spec.b]\ndtype = \"u8\"\nrange = [0, 300]\nscheme = \"per_tensor_affine\"")
            .starts_with("mine.toml:8:9: expected a range within [0, 255]")
    );
    assert!(error("[spec.b]\ndtype = \"u8\"\nscheme = \"fixed\"").contains("fixed needs scale and zero_point"));
    assert!(error("[spec.b]\ndtype = \"u8\"\nscheme = \"per_tensor_affine\"\nscale = 1.0").contains("does not use"));
    assert!(TomlQuantizer::parse("[quantizer", "x.toml").unwrap_err().to_string().starts_with("x.toml:1:"));
    assert!(
        TomlQuantizer::load("nix").unwrap_err().to_string().starts_with("no quantizer 'nix': built in are arm, cpu")
    );
}

#[test]
fn a_file_may_extend_another() {
    let text = "[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n[[pattern]]\nname = \"cat\"\nmatch = \"cat([xs…])\"\nfloat = \"I say so\"\n[[pattern]]\nname = \"new\"\nmatch = \"tanh(x)\"\ninputs = { x = \"activation\" }\noutput = \"activation\"\n";
    let q = TomlQuantizer::parse(text, "mine.toml").unwrap();
    let cpu = TomlQuantizer::load("cpu").unwrap();
    assert!(q.divides());
    assert_eq!(q.patterns().len(), cpu.patterns().len() + 1);
    assert_eq!((q.patterns()[0].name.as_str(), q.patterns()[0].float.as_deref()), ("cat", Some("I say so")));
    assert_eq!(q.patterns().iter().filter(|p| p.name == "cat").count(), 1);
    let e = TomlQuantizer::parse(&text.replace("\"cpu\"", "\"cqu\""), "mine.toml").unwrap_err().to_string();
    assert!(e.starts_with("mine.toml:3:11: no quantizer 'cqu'"), "{e}");
}

#[test]
fn priorities_go_before_the_order_of_files() {
    let pattern = |name: &str, more: &str| {
        format!("[[pattern]]\nname = \"{name}\"\nmatch = \"tanh(x)\"\nfloat = \"no\"\n{more}\n")
    };
    let patterns = [pattern("low", "priority = -1"), pattern("own", ""), pattern("high", "priority = 2")].concat();
    let text = format!("[quantizer]\nname = \"mine\"\nextends = \"onnx\"\n{patterns}");
    let q = TomlQuantizer::parse(&text, "mine.toml").unwrap();
    let names: Vec<&str> = q.patterns().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names[..3], ["high", "own", "softmax_stays_float"]);
    assert_eq!(names.last(), Some(&"low"));
}

#[test]
fn tests_of_a_file_are_read_with_it() {
    let test = |graph: &str| format!("[[test]]\nname = \"t\"\ngraph = \"\"\"{graph}\"\"\"\nunits = [\"p: relu\"]\n");
    let good = test("graph(%x: f32[2]) {\n  %relu = aten.relu(%x): f32[2]\n  return %relu\n}\n");
    let q = TomlQuantizer::parse(&format!("{HEAD}{good}"), "mine.toml").unwrap();
    assert_eq!((q.tests()[0].name.as_str(), q.tests()[0].units.as_slice()), ("t", ["p: relu".to_string()].as_slice()));
    let e = error(&test("graph(%x: f32[2]) {\n  %relu = aten.rellu(%x)\n  return %relu\n}\n"));
    assert!(e.starts_with("mine.toml:8:9: test 't': ") && e.contains("rellu"), "{e}");
}
