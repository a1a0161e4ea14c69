#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
use cleave::model::read_runnable;
use cleave_formats::npy::read_npz;
use cleave_runtime::{Options, Session, reference};
use cleave_tests::quantized::{through_onnx, worst};
use std::path::PathBuf;

#[test]
fn probe() {
    for name in std::env::var("PROBE").unwrap().split(',') {
        let path = PathBuf::from(name);
        let g = match read_runnable(&path) { Ok(g) => g, Err(e) => { println!("{name}: {e}"); continue } };
        if std::env::var("SHOW").is_ok() { println!("{g}"); }
        let a = read_npz(&path.with_extension("npz")).unwrap();
        let (x, want) = (a["in0"].clone(), a["out0"].clone());
        let mut s = Session::new(&g, Options::default()).unwrap();
        let got = s.run(std::slice::from_ref(&x)).unwrap().remove(0);
        println!("{name}: session {} {:?}", worst(&want, &got), s.plan(&[x.shape().to_vec()]).unwrap().kernels.iter().map(|k| k.kernel.clone()).collect::<Vec<_>>());
        if std::env::var("FAST").is_err() {
            println!("  reference {}", worst(&want, &reference::run(&g, &[x.clone()]).unwrap()[0]));
            let back = through_onnx(&g);
            println!("  back {}", worst(&want, &Session::new(&back, Options::default()).unwrap().run(&[x]).unwrap()[0]));
        }
    }
}
