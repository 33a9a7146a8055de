//! Models of very many layers. What took a time that grows with the square of their number would not end here.

use crate::random::build;
use runner::backend::cpu::CpuBackend;
use runner::config;

/// A configuration for vectors of four, with these sections of the model.
fn config(model: &str) -> String {
    format!(
        "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 4\nsamples = 8\nbatch_size = 4\n{model}\n[loss]\ntype = \
         \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.1\n[train]\nepochs = 1\n"
    )
}

const LINEAR: &str = "{ type = \"linear\", out_features = 4 }";

/// Models of `n` parts of each kind.
fn models(n: usize) -> [(&'static str, String); 4] {
    let list = |part: &dyn Fn(usize) -> String| (0..n).map(part).collect::<Vec<_>>().join(",\n");
    let layers = |list: String| format!("[model]\nlayers = [\n{list}\n]");
    let residual = |i: usize| format!("{{ type = \"residual\", name = \"r{i}\", layers = [{LINEAR}] }}");
    let branch = |_: usize| format!("{{ layers = [{LINEAR}] }}");
    [
        ("written out", layers(list(&|_| format!("{LINEAR}, \"relu\"")))),
        ("residual", layers(list(&residual))),
        ("branches", layers(format!("{{ type = \"branches\", combine = \"add\", branches = [{}] }}", list(&branch)))),
        (
            "repeated",
            format!(
                "[model]\nlayers = [{{ block = \"b\", repeat = {n} }}]\n[blocks.b]\nlayers = [{LINEAR}, \"tanh\",                  \"batch_norm1d\"]"
            ),
        ),
    ]
}

#[test]
fn many_layers_are_planned() {
    let backend = CpuBackend::new(Some(2)).unwrap();
    let n = 4000;
    for (name, model) in models(n) {
        let loaded = config::load_str("many.toml", &config(&model), &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let programs = build(&loaded.experiment, &backend).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert!(programs.rows.len() >= n, "{name}");
        let m = programs.plan.memory(1);
        let transient = programs.plan.transient_bytes;
        assert!(m.unused * 20 <= transient, "{name}: of {transient} bytes {} are gaps", m.unused);
    }
}
