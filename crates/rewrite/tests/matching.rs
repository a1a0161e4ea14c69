//! The pattern language, on small graphs.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Graph, NodeId, text};
use cleave_rewrite::{Alternatives, Match, NearMiss, Pattern};

const NET: &str = r#"graph(%x: f32[N, 3, 8, 8]) {
  %w = param "w": f32[4, 3, 1, 1]
  %b = param "b": f32[4]
  %v = param "v": f32[4]
  %conv2d = aten.conv2d(%x, %w, %b): f32[N, 4, 8, 8]
  %conv2d_1 = aten.conv2d(%x, %w): f32[N, 4, 8, 8]
  %batch_norm = aten.batch_norm(%conv2d_1, %v, %v, %v, %v, false, 0.1, 1e-5, false): f32[N, 4, 8, 8]
  %add = aten.add.Tensor(%conv2d, %batch_norm): f32[N, 4, 8, 8]
  %hardtanh = aten.hardtanh(%add, 0, 6): f32[N, 4, 8, 8]
  %sigmoid = aten.sigmoid(%hardtanh): f32[N, 4, 8, 8]
  %mul = aten.mul.Tensor(%sigmoid, %hardtanh): f32[N, 4, 8, 8]
  %pool = aten.max_pool2d_with_indices(%mul, [2, 2]): (f32[N, 4, 4, 4], i64[N, 4, 4, 4])
  %getitem = getitem(%pool, 0): f32[N, 4, 4, 4]
  %relu = aten.relu(%getitem): f32[N, 4, 4, 4]
  %cat = aten.cat([%relu, %getitem], 1): f32[N, 8, 4, 4]
  %add_1 = aten.add.Tensor(%cat, %cat, 2): f32[N, 8, 4, 4]
  return %add_1
}
"#;

fn net() -> Graph {
    let zeros = |n: usize| cleave_ir::Tensor::new(&[n], vec![0f32; n]);
    let mut g = text::parse(NET).unwrap();
    g.constants.insert("v".into(), zeros(4));
    g.constants.insert("b".into(), zeros(4));
    g.constants.insert("w".into(), zeros(12).reshape(&[4, 3, 1, 1]));
    g
}

fn any() -> Alternatives {
    Alternatives::from([
        ("conv".into(), vec!["conv1d".into(), "conv2d".into()]),
        ("act".into(), vec!["relu".into(), "hardtanh".into()]),
    ])
}

fn at(g: &Graph, name: &str) -> NodeId {
    g.find(name).unwrap()
}

fn attempt(pattern: &str, conditions: &[&str], root: &str) -> Result<Match, NearMiss> {
    let g = net();
    let p = conditions.iter().fold(Pattern::parse(pattern, &any()).unwrap(), |p, c| p.with_condition(c).unwrap());
    p.match_at(&g, at(&g, root))
}

/// Label or capture = node, for all of them.
fn found(pattern: &str, root: &str) -> String {
    let g = net();
    match attempt(pattern, &[], root) {
        Err(miss) => miss.to_string(),
        Ok(m) => {
            let labels = m.labels.iter().map(|(l, n)| format!("{l}:{}", g.node(*n).name));
            let captures = m.captures.iter().map(|(c, a)| format!("{c}={}", text::arg_text(&g, a)));
            labels.chain(captures).collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn wrappers_and_arguments_may_be_absent() {
    let p = "act?(batch_norm?(conv(x, w, b?)))";
    assert_eq!(found(p, "conv2d"), "conv:conv2d x=%x w=%w b=%b");
    assert_eq!(found(p, "batch_norm"), "batch_norm:batch_norm conv:conv2d_1 x=%x w=%w");
    assert_eq!(found(p, "hardtanh"), "at conv: expected conv, found add (add)");
}

#[test]
fn operands_are_exchanged_and_the_later_call_is_met_first() {
    assert_eq!(
        found("act(add(batch_norm?(conv(x, w, b?)), r))", "hardtanh"),
        "act:hardtanh add:add batch_norm:batch_norm conv:conv2d_1 x=%x w=%w r=%conv2d"
    );
    assert_eq!(
        found("add(r, batch_norm?(conv(x, w, b?)))", "add"),
        "add:add batch_norm:batch_norm conv:conv2d_1 r=%conv2d x=%x w=%w"
    );
}

#[test]
fn a_repeated_capture_is_one_value() {
    assert_eq!(found("mul(x, s:sigmoid(x))", "mul"), "mul:mul s:sigmoid x=%hardtanh");
    assert_eq!(
        found("add(mul(x, x), y)", "add"),
        "at mul: expected mul, found conv2d (conv2d)",
        "the deepest failure is told"
    );
}

#[test]
fn numbers_have_a_tolerance_and_defaults_are_held() {
    assert!(attempt("hardtanh(x, 0, 6.0000001)", &[], "hardtanh").is_ok());
    assert_eq!(
        attempt("hardtanh(x, min_val=-1)", &[], "hardtanh").unwrap_err().to_string(),
        "at literal: expected -1, found 0"
    );
    assert_eq!(found("add(a, b)", "add_1"), "at add: alpha is 2, not its default");
    assert!(attempt("add(a, b, ..)", &[], "add_1").is_ok());
    assert!(attempt("add(a, b, alpha=2)", &[], "add_1").is_ok());
}

#[test]
fn calls_match_through_getitem_and_in_lists() {
    let m = attempt("relu(max_pool2d_with_indices(x))", &[], "relu").unwrap();
    assert_eq!(m.nodes.len(), 3);
    let m = attempt("cat([xs…])", &[], "cat").unwrap();
    assert_eq!(m.lists["xs"].len(), 2);
    assert_eq!(m.edges.iter().map(|e| e.index).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert!(attempt("cat([relu(y), y])", &[], "cat").is_ok());
    assert!(attempt("cat([y])", &[], "cat").is_err());
}

#[test]
fn chains_take_the_longest_way_and_collect_other_operands() {
    let g = net();
    let m = attempt("pointwise*(conv(x, w), extras...)", &[], "hardtanh").unwrap();
    assert_eq!(m.node("conv"), Some(at(&g, "conv2d")));
    assert_eq!(m.lists["extras"], [cleave_ir::Arg::Node(at(&g, "batch_norm"))]);
    assert_eq!(m.nodes.len(), 3);
    let m = attempt("pointwise*(conv(x, w), extras…)", &[], "conv2d_1").unwrap();
    assert_eq!(m.nodes.len(), 1);
}

#[test]
fn conditions_hold_or_say_why_not() {
    let why = |p: &str, c: &str, root: &str| match attempt(p, &[c], root) {
        Ok(_) => "holds".to_string(),
        Err(miss) => miss.why,
    };
    let conv = "batch_norm?(conv(x, w, b?))";
    assert_eq!(why("sigmoid(act(y))", "single_use(act)", "sigmoid"), "act has 2 users");
    assert_eq!(why("mul(sigmoid(h:act(y)), h2:act(y))", "single_use(h)", "mul"), "holds");
    assert_eq!(why(conv, "constant(w)", "conv2d"), "holds");
    assert_eq!(why(conv, "constant(x)", "conv2d"), "x is not a constant");
    assert_eq!(why(conv, "not constant(w)", "conv2d"), "'constant(w)' holds");
    assert_eq!(why(conv, "single_use(batch_norm)", "conv2d"), "holds", "of an absent part nothing is asked");
    assert_eq!(why(conv, "conv.stride == [1, 1]", "conv2d"), "holds");
    assert_eq!(why(conv, "conv.groups > 1", "conv2d"), "conv.groups is 1");
    assert_eq!(why(conv, "dim(x, 0) == 1", "conv2d"), "dim(x, 0) is N");
    assert_eq!(why(conv, "dim(x, -1) == 8", "conv2d"), "holds");
    assert_eq!(why(conv, "dtype(x) == f16", "conv2d"), "dtype(x) is f32");
    assert_eq!(why("cat([a, b])", "compatible_shape(a, b)", "cat"), "holds");
    assert_eq!(why(conv, "compatible_shape(x, conv)", "conv2d"), "x is [N, 3, 8, 8] and conv is [N, 4, 8, 8]");
    assert_eq!(why(conv, "same_shape(x, conv)", "conv2d"), "x is [N, 3, 8, 8] and conv is [N, 4, 8, 8]");
}

#[test]
fn alternatives_may_stand_in_the_expression() {
    assert_eq!(found("relu|hardtanh(add(a, b))", "hardtanh"), "relu:hardtanh add:add a=%conv2d b=%batch_norm");
    assert_eq!(found("e:act|sigmoid(x)", "sigmoid"), "e:sigmoid x=%hardtanh");
    assert_eq!(found("relu|tanh?(conv|linear(x, w, ..))", "conv2d"), "conv:conv2d x=%x w=%w");
    assert_eq!(
        found("sigmoid(relu|tanh(x))", "sigmoid"),
        "at relu|tanh: expected relu|tanh, found hardtanh (hardtanh)"
    );
    let e = Pattern::parse("relu|rellu(x)", &any()).unwrap_err().to_string();
    assert_eq!(e, "line 1, column 1: unknown op, class or alternative 'rellu'");
    let e = Pattern::parse("relu(a|b)", &any()).unwrap_err().to_string();
    assert_eq!(e, "line 1, column 9: alternatives are called: expected '('");
}

#[test]
fn conditions_speak_of_neighbours() {
    let why = |p: &str, c: &str, root: &str| match attempt(p, &[c], root) {
        Ok(_) => "holds".to_string(),
        Err(miss) => miss.why,
    };
    assert_eq!(why("sigmoid(x)", "produced_by(x, act)", "sigmoid"), "holds");
    assert_eq!(why("sigmoid(x)", "produced_by(x, conv)", "sigmoid"), "x is not the result of conv");
    assert_eq!(why("sigmoid(x)", "not produced_by(x, hardtanh)", "sigmoid"), "'produced_by(x, hardtanh)' holds");
    assert_eq!(why("relu(x)", "produced_by(x, pool)", "relu"), "holds", "through getitem");
    assert_eq!(why("sigmoid(x)", "used_by(x, mul)", "sigmoid"), "holds");
    assert_eq!(
        why("sigmoid(x)", "used_by(x, sigmoid)", "sigmoid"),
        "no sigmoid uses x",
        "matched nodes are not others"
    );
    assert_eq!(why("hardtanh(x)", "not used_by(hardtanh, mul)", "hardtanh"), "'used_by(hardtanh, mul)' holds");
    assert_eq!(why("sigmoid(x)", "before(x, sigmoid)", "sigmoid"), "holds");
    assert_eq!(why("sigmoid(x)", "before(sigmoid, x)", "sigmoid"), "sigmoid does not stand before x");
    let p = Pattern::parse("relu(x)", &any()).unwrap();
    let e = p.with_condition("used_by(x, rellu)").unwrap_err().to_string();
    assert_eq!(e, "line 1, column 12: unknown op, class or alternative 'rellu'");
}

#[test]
fn chains_of_views_and_of_pointwise_ops_have_any_length() {
    let g = text::parse(
        "graph(%x: f32[2, 3, 4]) {
  %permute = aten.permute(%x, [0, 2, 1]): f32[2, 4, 3]
  %view = aten.view(%permute, [8, 3]): f32[8, 3]
  %relu = aten.relu(%view): f32[8, 3]
  %unsqueeze = aten.unsqueeze(%relu, 0): f32[1, 8, 3]
  return %unsqueeze
}
",
    )
    .unwrap();
    let matched = |p: &str, root: &str| {
        let m = Pattern::parse(p, &any()).unwrap().match_at(&g, at(&g, root));
        m.map(|m| m.nodes.iter().map(|n| g.node(*n).name.clone()).collect::<Vec<_>>().join(" "))
            .map_err(|e| e.to_string())
    };
    assert_eq!(matched("view*(relu(view*(x)))", "unsqueeze").unwrap(), "permute view relu unsqueeze");
    assert_eq!(matched("view*(relu(x))", "relu").unwrap(), "relu", "a chain may be empty");
    assert_eq!(matched("aten.view(permute(x, dims=[0, 2, 1]), ..)", "view").unwrap(), "permute view");
    assert!(matched("aten.view(aten.view(x, ..), ..)", "view").is_err(), "the op alone, not its class");
}

#[test]
fn nodes_may_be_kept_out() {
    let g = net();
    let p = Pattern::parse("batch_norm(conv(x, w))", &any()).unwrap();
    let taken = at(&g, "conv2d_1");
    let admit = |n: NodeId| if n == taken { Err("it belongs to another unit".to_string()) } else { Ok(()) };
    let miss = p.match_admitted(&g, at(&g, "batch_norm"), &admit).unwrap_err();
    assert_eq!((miss.matched, miss.to_string().as_str()), (1, "at conv: it belongs to another unit"));
}

#[test]
fn errors_name_line_and_column() {
    for (text, want) in [
        ("relu(x", "line 1, column 7: expected ','"),
        ("relu(\n  rellu(x))", "line 2, column 3: unknown op, class or alternative 'rellu'"),
        ("relu(x) y", "line 1, column 9: text behind the pattern"),
        ("hardtanh(x, max=1)", "line 1, column 13: 'hardtanh' has no parameter 'max'"),
        ("relu(x, y)", "line 1, column 1: 2 arguments, but 'relu' takes fewer"),
        ("x", "line 1, column 1: a pattern is the call of an op"),
        ("cat([x…, y])", "line 1, column 8: expected ']'"),
        ("add(cat([xs…]), xs)", "line 1, column 17: 'xs' is a list elsewhere in the pattern"),
        ("relu?()", "line 1, column 1: an optional call needs what it is called on"),
        ("relu(add(x, 1e))", "line 1, column 13: '1e' is no number"),
    ] {
        assert_eq!(Pattern::parse(text, &any()).unwrap_err().to_string(), want, "{text}");
    }
    for (condition, want) in [
        ("constnt(x)", "line 1, column 1: unknown predicate 'constnt'"),
        ("constant(q)", "line 1, column 10: the pattern has no 'q', only x, relu"),
        ("relu.alpha == 1", "line 1, column 1: 'relu' has no parameter 'alpha'"),
        ("rank(x)", "line 1, column 8: expected a comparison"),
    ] {
        let p = Pattern::parse("relu(x)", &any()).unwrap();
        let e = p.with_condition(condition).unwrap_err().to_string();
        assert!(e.starts_with(want), "{e}");
    }
}

#[test]
fn roots_are_found_through_wrappers() {
    let p = Pattern::parse("act?(batch_norm?(conv(x, w)))", &any()).unwrap();
    let can = |n: &str| p.may_start_at(cleave_ir::op::find(n).unwrap());
    assert_eq!(
        [can("aten.relu"), can("aten.conv2d"), can("aten.batch_norm"), can("aten.add.Tensor")],
        [true, true, true, false]
    );
    assert!(!can("aten.relu_"), "a pattern means functional ops");
}

#[test]
fn sizes_that_cannot_be_compared_are_compatible() {
    let g = text::parse(
        "graph(%a: f32[N, M], %b: f32[N, 7], %c: f32[N, 1]) {
  %cat = aten.cat([%a, %b]): f32[2*N, M]
  %mul = aten.mul.Tensor(%a, %c): f32[N, M]
  return %cat, %mul
}
",
    )
    .unwrap();
    let holds = |p: &str, condition: &str, root: &str| {
        let p = Pattern::parse(p, &any()).unwrap().with_condition(condition).unwrap();
        p.match_at(&g, at(&g, root)).is_ok()
    };
    assert!(holds("cat([x, y])", "compatible_shape(x, y)", "cat") && !holds("cat([x, y])", "same_shape(x, y)", "cat"));
    assert!(!holds("mul(x, y)", "compatible_shape(x, y)", "mul"), "a 1 is broadcast");
}
