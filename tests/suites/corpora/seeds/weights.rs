//! Weights, and checkpoints.

use super::List;
use super::config::with_layers;
use crate::targets::stored_zip;

/// A pickle of numbers, strings and instructions.
#[derive(Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        let len = (text.len() as u32).to_le_bytes();
        self.raw(b"X").raw(&len).raw(text.as_bytes())
    }

    fn int(self, n: i32) -> Self {
        self.raw(b"J").raw(&n.to_le_bytes())
    }

    fn ints(self, list: &[i32]) -> Self {
        list.iter().fold(self.raw(b"("), |p, n| p.int(*n)).raw(b"t")
    }

    /// A tensor in storage `key`.
    fn tensor(self, key: &str, class: &str, len: i32, offset: i32, shape: &[i32], stride: &[i32]) -> Self {
        self.raw(b"ctorch._utils\n_rebuild_tensor_v2\n((")
            .text("storage")
            .raw(format!("ctorch\n{class}\n").as_bytes())
            .text(key)
            .text("cpu")
            .int(len)
            .raw(b"tQ")
            .int(offset)
            .ints(shape)
            .ints(stride)
            .raw(b"\x89ccollections\nOrderedDict\n)RtR")
    }
}

fn one(tensor: impl FnOnce(Pickle) -> Pickle) -> Vec<u8> {
    tensor(Pickle::default().raw(b"\x80\x02}").text("w")).raw(b"s.").0
}

pub fn add(list: &mut List) {
    pickles(list);
    archives(list);
    headers(list);
    checkpoints(list);
}

fn pickles(list: &mut List) {
    let whole = one(|p| p.tensor("1", "FloatStorage", 16, 1, &[3, 2], &[4, 2]));
    list.seed("pickle", "ok-float", whole.clone());
    list.seed("pickle", "ok-halves", one(|p| p.tensor("0", "HalfStorage", 4, 0, &[2, 2], &[2, 1])));
    list.seed("pickle", "ok-longs", one(|p| p.tensor("1", "LongStorage", 8, 0, &[8], &[1])));
    list.seed("pickle", "ok-ordered", {
        let start = Pickle::default().raw(b"\x80\x02ccollections\nOrderedDict\nq\0)Rq\x01(").text("layer.weight");
        let both = start.tensor("1", "FloatStorage", 16, 0, &[4, 4], &[4, 1]).text("layer.bias");
        both.tensor("0", "FloatStorage", 2, 0, &[2], &[1]).raw(b"u}").text("_metadata").raw(b"h\0)Rsb.").0
    });
    list.seed("pickle", "ok-within", {
        let start = Pickle::default()
            .raw(b"\x80\x02}(")
            .text("epoch")
            .raw(b"K\x05")
            .text("state_dict")
            .raw(b"}")
            .text("module.w");
        start.tensor("0", "FloatStorage", 2, 0, &[1], &[1]).raw(b"su.").0
    });
    list.seed("pickle", "protocol-4", b"\x80\x04\x95\x20\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94u.".to_vec());
    // What would harm: lists in themselves, memory out of nothing, recursion, code.
    let bad: [(&str, Vec<u8>); 17] = [
        ("dict-in-itself", Pickle::default().raw(b"\x80\x02}q\0").text("w").raw(b"h\0s.").0),
        ("list-in-itself", b"\x80\x02]q\0h\0a.".to_vec()),
        ("tuple-of-itself", b"\x80\x02]q\0(h\0h\0h\0tq\x01a(h\x01h\x01h\x01t.".to_vec()),
        ("deep-lists", [vec![b']'; 20_000], vec![b'a'; 19_999], b".".to_vec()].concat()),
        ("deep-dicts", [b"}X\x01\0\0\0w".repeat(4000), vec![b's'; 3999], b".".to_vec()].concat()),
        ("long-text", b"X\xff\xff\xff\xff.".to_vec()),
        ("long-number", b"\x8b\xff\xff\xff\x7f.".to_vec()),
        ("negative-number", b"\x8b\xff\xff\xff\xff.".to_vec()),
        ("memo-far-off", b"Nr\xff\xff\xff\xff.".to_vec()),
        ("memo-of-nothing", b"j\xff\xff\xff\xff.".to_vec()),
        ("doubling", [b"(NNNNNNNNt".to_vec(), b"(2222t".repeat(200), b".".to_vec()].concat()),
        ("code", b"cposix\nsystem\n(X\x04\0\0\0trueStR.".to_vec()),
        ("stretched", one(|p| p.tensor("0", "FloatStorage", 2, 0, &[i32::MAX, i32::MAX], &[0, 0]))),
        ("stretched-more", one(|p| p.tensor("0", "FloatStorage", 2, 0, &[i32::MAX; 4], &[0; 4]))),
        ("outside", one(|p| p.tensor("0", "FloatStorage", 2, 1, &[2], &[1]))),
        ("negative-stride", one(|p| p.tensor("0", "FloatStorage", 2, 1, &[2], &[-1]))),
        ("outside-the-folder", one(|p| p.tensor("../../0", "FloatStorage", 2, 0, &[2], &[1]))),
    ];
    for (name, bytes) in bad {
        list.crash("pickle", &format!("bad-{name}"), bytes);
    }
}

fn archives(list: &mut List) {
    let pickle = one(|p| p.tensor("0", "FloatStorage", 2, 0, &[2], &[1]));
    let whole = stored_zip(&[("a/data.pkl", &pickle), ("a/byteorder", b"little"), ("a/data/0", &[1; 8])]);
    list.seed("weights", "ok-archive", whole.clone());
    list.seed("weights", "bad-legacy", b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec());
    list.crash("weights", "bad-zip-two-pickles", stored_zip(&[("a/data.pkl", &pickle), ("b/data.pkl", &pickle)]));
    list.crash(
        "weights",
        "zip-one-name-twice",
        stored_zip(&[("a/data.pkl", &pickle), ("a/data/0", &[1; 8]), ("a/data/0", &[2; 8])]),
    );
    list.crash("weights", "bad-zip-big-endian", stored_zip(&[("a/data.pkl", &pickle), ("a/byteorder", b"big")]));
    // Every entry of the directory leads to the same bytes.
    let mut overlapping = stored_zip(&[("a/data.pkl", &pickle), ("a/data/0", &[1; 8]), ("a/data/1", &[1; 8])]);
    for at in directory(&overlapping) {
        overlapping[at + 42..at + 46].fill(0);
    }
    list.crash("weights", "bad-zip-overlapping", overlapping);
    // Sizes of gigabytes.
    let mut claims = whole.clone();
    for at in directory(&whole) {
        claims[at + 20..at + 28].copy_from_slice(&[0xfe, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff]);
    }
    list.crash("weights", "bad-zip-claims", claims);
    let end = whole.len() - 22;
    let mut entries = whole.clone();
    entries[end + 8..end + 12].fill(0xff);
    list.crash("weights", "zip-entries", entries);
    list.crash("weights", "bad-zip-cut", whole[..whole.len() - 30].to_vec());
}

/// Where the entries of an archive's directory stand.
fn directory(zip: &[u8]) -> Vec<usize> {
    zip.windows(4).enumerate().filter(|(_, w)| w == b"PK\x01\x02").map(|(at, _)| at).collect()
}

fn headers(list: &mut List) {
    let entry = |name: &str, kind: &str, shape: &str, from: u64, to: u64| {
        format!("\"{name}\":{{\"dtype\":\"{kind}\",\"shape\":{shape},\"data_offsets\":[{from},{to}]}}")
    };
    let file = |entries: &[String]| format!("{{{}}}", entries.join(","));
    list.seed(
        "safetensors",
        "ok-weights",
        file(&[entry("a.weight", "F32", "[2,2]", 0, 16), entry("a.bias", "F16", "[2]", 16, 20)]),
    );
    list.seed("safetensors", "ok-kinds", {
        let kinds = [
            ("F64", 8),
            ("I64", 8),
            ("I32", 4),
            ("U32", 4),
            ("I16", 2),
            ("BF16", 2),
            ("U8", 1),
            ("I8", 1),
            ("BOOL", 1),
        ];
        let mut at = 0;
        let entries = kinds.map(|(kind, bytes)| {
            at += bytes;
            entry(kind, kind, "[1]", at - bytes, at)
        });
        file(&entries)
    });
    list.seed(
        "safetensors",
        "ok-vectors",
        file(&[entry("inputs", "F32", "[4,3]", 0, 48), entry("targets", "U8", "[4]", 48, 52)]),
    );
    list.seed("safetensors", "ok-images", {
        let train = [entry("inputs", "U8", "[2,1,3,3]", 0, 18), entry("targets", "F32", "[2]", 20, 28)];
        let val = [entry("val_inputs", "U8", "[1,1,3,3]", 28, 37), entry("val_targets", "F32", "[1,1]", 37, 41)];
        // Without gaps, as the format wants it.
        file(&[train, val].concat())
            .replace("[20,28]", "[18,26]")
            .replace("[28,37]", "[26,35]")
            .replace("[37,41]", "[35,39]")
    });
    list.seed("safetensors", "ok-empty", file(&[entry("a", "F32", "[0]", 0, 0)]));
    for (name, shape, to) in [
        ("product", "[4294967296,4294967296]", 0),
        ("size", "[18446744073709551615]", 4),
        ("dimensions", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 4),
        ("claims", "[1073741824]", 4294967296),
        ("none", "[0,18446744073709551615]", 0),
    ] {
        for inputs in [false, true] {
            let entries = match inputs {
                true => vec![entry("inputs", "F32", shape, 0, to), entry("targets", "U8", "[0]", to, to)],
                false => vec![entry("a", "F32", shape, 0, to)],
            };
            list.crash("safetensors", &format!("shape-{name}{}", if inputs { "-data" } else { "" }), file(&entries));
        }
    }
    list.crash("safetensors", "name-twice", file(&[entry("a", "U8", "[1]", 0, 1), entry("a", "U8", "[1]", 1, 2)]));
    list.crash("safetensors", "bad-overlapping", file(&[entry("a", "U8", "[2]", 0, 2), entry("b", "U8", "[2]", 1, 3)]));
    list.crash("safetensors", "bad-backwards", file(&[entry("a", "U8", "[2]", 2, 0)]));
    list.crash("safetensors", "bad-deep", format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000)));
    list.crash("weights", "bad-header-length", b"\xff\xff\xff\xff\xff\xff\xff\xff{}".to_vec());
    list.crash("weights", "bad-header-longer", b"\xff\xff\xff\x7f\0\0\0\0{}".to_vec());
    list.crash("weights", "bad-header-none", b"\0\0\0\0\0\0\0\0{".to_vec());
}

/// A checkpoint's parts.
fn checkpoint(state: &str, config: &str, tensors: &str) -> Vec<u8> {
    [state, config, tensors].join("\0").into_bytes()
}

fn checkpoints(list: &mut List) {
    let state = |step: &str, extra: &str| {
        format!(
            "{{\"version\":1,\"program\":\"0.1.0\",\"epoch\":0,\"step\":{step},\"batch\":1,\"best\":null,\"seed\":1,\"extra\":{extra}}}"
        )
    };
    // As many sums as there are slots, so that everything is put back.
    let sums = ["0"; runner::graph::op::METRIC_SLOTS].join(",");
    let extra = format!(
        "{{\"micro_step\":1,\"metrics_bytes\":0,\"train_sums\":[{sums}],\"early_best\":null,\"early_waited\":0,\"epoch_seconds\":0,\"data_note\":null}}"
    );
    let config =
        with_layers("\"flatten\", { type = \"linear\", out_features = 3, bias = false }").replace("[2, 6, 6]", "[2]");
    let weight = "\"1.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}";
    list.seed("checkpoint", "ok-whole", checkpoint(&state("1", &extra), &config, weight));
    list.seed("checkpoint", "ok-momentum", {
        let more =
            "\"optimizer.momentum_buffer.1.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[24,48]}";
        checkpoint(
            &state("1", &extra),
            &config.replace("lr = 0.1", "lr = 0.1\nmomentum = 0.9"),
            &format!("{weight},{more}"),
        )
    });
    list.seed(
        "checkpoint",
        "ok-best",
        checkpoint(
            &state("1", &extra).replace("null,\"seed\"", "{\"monitor\":\"val_loss\",\"value\":1e-3},\"seed\""),
            &config,
            weight,
        ),
    );
    let sample = |input: &str| {
        let sample = format!(
            "\"sample\":{{\"input\":{input},\"bytes\":false,\"classes\":3,\"classes_exact\":true,\"values\":[],\"class_names\":[\"a\"]}}"
        );
        let started = "\"started\":{\"name\":\"a\",\"sets\":[\"train.epochs=2\"],\"without\":[\"fuse\"]}";
        extra.replace("\"data_note\":null", &format!("\"data_note\":null,{started},{sample}"))
    };
    list.seed("checkpoint", "ok-sample", checkpoint(&state("1", &sample("[2]")), &config, weight));
    for (name, input) in [("size", "[18446744073709551615,2]"), ("none", "[0]"), ("image", "[4096,4096,1]")] {
        list.crash("checkpoint", &format!("sample-{name}"), checkpoint(&state("1", &sample(input)), &config, weight));
    }
    list.seed("checkpoint", "ok-nothing", checkpoint(&state("0", "null"), "", ""));
    for (name, old, new) in [
        ("batch", "\"batch\":1", "\"batch\":18446744073709551615"),
        ("epoch", "\"epoch\":0", "\"epoch\":18446744073709551615"),
        ("step", "\"step\":1", "\"step\":18446744073709551615"),
        ("best", "\"best\":null", "\"best\":{\"monitor\":\"\\u001b[2J\",\"value\":1e308}"),
    ] {
        list.crash(
            "checkpoint",
            &format!("state-{name}"),
            checkpoint(&state("1", &extra).replace(old, new), &config, weight),
        );
    }
    let sums = extra.replace(&sums, "0");
    list.crash("checkpoint", "sums-few", checkpoint(&state("1", &sums), &config, weight));
    list.crash(
        "checkpoint",
        "bad-version",
        checkpoint(&state("1", &extra).replace("\"version\":1", "\"version\":99"), &config, weight),
    );
    for (name, text) in [
        ("extends", format!("extends = \"/etc/passwd\"\n{config}")),
        ("extends-a-device", format!("extends = \"/dev/zero\"\n{config}")),
        ("use", config.replace("layers = [", "use = \"/etc/passwd\"\nold = [")),
        (
            "mirrors",
            config.replace(
                "source = \"synthetic\"",
                "source = \"mnist\"\nroot = \"/nowhere\"\nmirrors = [\"http://127.0.0.1:9/\"]",
            ),
        ),
        ("shape", config.replace("[2]", "[16777216]").replace("out_features = 3", "out_features = 16777216")),
        ("deep", format!("x = {}{}", "[".repeat(3000), "]".repeat(3000))),
        ("sets", format!("#--set train.epochs=9\n{config}")),
    ] {
        list.crash("checkpoint", &format!("config-{name}"), checkpoint(&state("1", &extra), &text, weight));
    }
    for (name, tensors) in [
        ("shape", weight.replace("[3,2]", "[2,3]")),
        ("type", weight.replace("F32", "I32")),
        ("name", weight.replace("1.weight", "__metadata__")),
        ("none", String::new()),
        ("more", format!("{weight},\"x\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[24,25]}}")),
    ] {
        list.crash("checkpoint", &format!("tensors-{name}"), checkpoint(&state("1", &extra), &config, &tensors));
    }
    // Not a number where numbers should be.
    let mut nan = checkpoint(&state("1", &extra), &config, weight);
    nan.push(0);
    nan.extend([0xff; 24]);
    list.crash("checkpoint", "ok-tensors-not-finite", nan);
}
