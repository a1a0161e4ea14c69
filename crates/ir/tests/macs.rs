//! Multiply-accumulates of known networks.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_ir::{Bindings, macs, text};
use std::path::Path;

/// In units of 10⁹, as torchvision's documentation states them (`_ops` of the weights), at the size stated there.
const NETWORKS: [(&str, f64); 19] = [
    ("alexnet", 0.714),
    ("convnext_tiny", 4.456),
    ("densenet121", 2.834),
    ("efficientnet_b0", 0.386),
    ("googlenet", 1.498),
    ("inception_v3", 5.713),
    ("maxvit_t", 5.558),
    ("mnasnet1_0", 0.314),
    ("mobilenet_v2", 0.301),
    ("mobilenet_v3_large", 0.217),
    ("mobilenet_v3_small", 0.057),
    ("regnet_y_400mf", 0.402),
    ("resnet18", 1.814),
    ("resnet50", 4.089),
    ("resnext50_32x4d", 4.23),
    ("shufflenet_v2_x1_0", 0.145),
    ("squeezenet1_1", 0.349),
    ("swin_t", 4.491),
    ("vgg11_bn", 7.609),
];

#[test]
fn networks_have_the_numbers_that_are_published() {
    let mut off = vec![];
    for (name, stated) in NETWORKS {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/graphs/{name}.graph"));
        let src = std::fs::read_to_string(file).unwrap();
        let g = text::parse(&src).unwrap();
        let found = macs::total(&g, &Bindings::new()) as f64 / 1e9;
        if (found - stated).abs() > 0.0006 {
            off.push(format!("{name}: {found:.4}, stated {stated}"));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}
