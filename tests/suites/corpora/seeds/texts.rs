//! Tables, texts, tokenizers, and bodies of requests.

use super::List;
use super::data::prefixed;

pub fn add(list: &mut List) {
    tables(list);
    texts(list);
    tags(list);
    tokens(list);
    tokenizers(list);
    bodies(list);
}

fn tags(list: &mut List) {
    let seed =
        |list: &mut List, name: &str, how: u8, text: &str| list.seed("tags", name, prefixed(how, text.as_bytes()));
    seed(list, "ok-columns", 0, "Anna N B-PER\nin P O\nOslo N B-LOC\n\n\nA N O\r\nB N I-X\r\n");
    seed(list, "ok-chosen", 17, "Anna B-PER x\nB O y\n");
    seed(list, "ok-words", 10, "1 Anna B-PER\n2 is O\n");
    seed(
        list,
        "ok-json",
        4,
        "{\"words\":[\"a\",\"b\"],\"tags\":[\"O\",\"B-X\"]}\n{\"words\":[\"c\"],\"tags\":[\"I-X\"]}\n",
    );
    seed(list, "ok-pairs", 7, "{\"words\":[\"good good\",\"b\"],\"tags\":[\"O\",\"B-X\"]}\n");
    seed(list, "bad-columns", 24, "Anna\n");
    seed(list, "bad-lengths", 4, "{\"words\":[\"a\"],\"tags\":[\"O\",\"O\"]}\n");
    seed(list, "bad-none", 0, "\n\n");
}

fn tokens(list: &mut List) {
    let numbers = |all: &[u16]| all.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>();
    let llm_c = |magic: i32, count: i32, body: &[u8]| {
        let mut file: Vec<u8> = [magic, 1, count].iter().flat_map(|number| number.to_le_bytes()).collect();
        file.resize(1024, 0);
        file.extend_from_slice(body);
        file
    };
    let bare = numbers(&[1, 5, 2, 0, 700, 9]);
    list.seed("tokens", "ok-bare", prefixed(9, &bare));
    list.seed("tokens", "ok-16-bits", prefixed(9, &llm_c(20_240_520, 6, &bare)));
    list.seed("tokens", "ok-32-bits", prefixed(9, &llm_c(20_240_801, 3, &bare)));
    list.seed("tokens", "bad-count", prefixed(9, &llm_c(20_240_520, 7, &bare)));
    list.seed("tokens", "bad-negative", prefixed(9, &llm_c(20_240_801, -3, &bare)));
    list.seed("tokens", "bad-header", prefixed(9, &llm_c(20_240_520, 6, &bare)[..100]));
    list.seed("tokens", "bad-odd", prefixed(9, &bare[1..]));
    list.seed("tokens", "bad-short", prefixed(15, &bare[..4]));
}

fn tables(list: &mut List) {
    let seed =
        |list: &mut List, name: &str, how: u8, text: &str| list.seed("table", name, prefixed(how, text.as_bytes()));
    seed(list, "ok-numbers", 0, "a,b,y\n1,2.5,3\n-1e3,,4\n0,7,5\n");
    seed(
        list,
        "ok-kinds",
        64,
        "\u{feff}town,when,yes,n,y\r\nsea,2024-02-29,true,1,3\r\nhill,1999-12-31,no,2,4\r\n\"a \"\"b\"\"\",,,,5\r\n",
    );
    seed(list, "ok-comma", 12, "a;y\n1,5;2\n2,5;3\n");
    seed(list, "ok-classes", 16, "a,y\n1,7\n2,8\n3,7\n");
    seed(list, "ok-words", 33, "a\ty\n1\tcat\n2\tdog\n");
    seed(list, "ok-json", 34, "{\"a\":1,\"b\":\"x\",\"y\":2}\n{\"a\":null,\"b\":true,\"y\":3.5}\n");
    seed(list, "ok-hashed", 128, "a,text,y\nsea,one two \u{e9}\u{301} TWO,3\n,,4\nhill,\u{1f600},5\n");
    seed(list, "bad-no-column", 0, "a,b\n1,2\n");
    seed(list, "bad-target", 0, "a,y\n1,\n2,\n");
    seed(list, "bad-twice", 0, "a,a,y\n1,2,3\n");
    seed(list, "bad-short", 0, "a,b,y\n1,2\n");
    list.crash("table", "bad-quote", prefixed(0, format!("a,y\n1,\"{}", "x\n".repeat(2000)).as_bytes()));
    list.crash("table", "bad-deep", prefixed(2, format!("{{\"y\":{}", "[".repeat(4000)).as_bytes()));
    list.crash("table", "large", prefixed(0, b"a,y\n1e308,1\n-1e308,2\n1e308,1e308\n"));
    list.crash("table", "infinite", prefixed(0, b"a,y\n1e999,1\n2,-1e999\n"));
}

fn texts(list: &mut List) {
    for (name, how) in [("ok-bytes", 4), ("ok-characters", 5), ("ok-words", 6), ("ok-pairs", 7)] {
        list.seed("text", name, prefixed(how, "one two \u{e9}, two\r\none\u{1f600} two one two\n".as_bytes()));
    }
    list.seed("text", "ok-no-text", prefixed(4, b"\xff\xfe\x00\x80"));
    list.seed("text", "bad-no-text", prefixed(5, b"one\xff two"));
    list.seed("text", "bad-short", prefixed(28, b"1"));
    list.seed("text", "bad-empty", prefixed(4, b""));
    let seed =
        |list: &mut List, name: &str, how: u8, text: &str| list.seed("labelled", name, prefixed(how, text.as_bytes()));
    seed(list, "ok-bytes", 0, "text,y\ngood film,p\n\"bad, long film\",n\n");
    seed(list, "ok-characters", 5, "y\ttext\np\tgood film\nn\tbad\n");
    seed(
        list,
        "ok-words",
        10,
        "{\"text\":\"good film\",\"y\":1}\n{\"text\":\"\",\"y\":2}\n{\"text\":\"bad film\",\"y\":2}\n",
    );
    seed(list, "ok-pairs", 3, "text,y\ngood good film film,p\nbad,n\n");
    seed(list, "bad-no-column", 0, "text,z\na,b\n");
    seed(list, "bad-no-texts", 0, "text,y\n ,b\n");
    list.crash("labelled", "bad-deep", prefixed(8, format!("{{\"text\":{}", "[".repeat(4000)).as_bytes()));
}

fn tokenizers(list: &mut List) {
    let json = |model: &str, more: &str| {
        format!(
            "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],{more}\"model\":{model}}}"
        )
    };
    let vocabulary = "\"vocab\":{\"[UNK]\":0,\"one\":1,\"two\":2,\",\":3}";
    let words = format!("{{\"type\":\"WordLevel\",{vocabulary},\"unk_token\":\"[UNK]\"}}");
    let pairs = "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"fuse_unk\":false,\"vocab\":{\"o\":0,\"n\":1,\"e\":2,\"on\":3,\"one\":4},\
                 \"merges\":[[\"o\",\"n\"],[\"on\",\"e\"]]}";
    let pieces = "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,\
                  \"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"on\":3,\"##e\":4}}";
    let unigram = "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"one\",-1.5],[\"o\",-3.0],[\"\u{2581}\",-2.0]],\"byte_fallback\":false}";
    let bert = "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},\
                \"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\
                \"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},\
                {\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],\"pair\":[],\
                \"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[1],\"tokens\":[\"[CLS]\"]},\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[2],\"tokens\":[\"[SEP]\"]}}},\
                \"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},";
    let bytes = "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},\
                 \"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},";
    let meta = "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u{2581}\",\"prepend_scheme\":\"always\",\"split\":true},\
                \"post_processor\":null,\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\u{2581}\",\"prepend_scheme\":\"always\",\"split\":true},";
    let split = "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\" \"}]},\
                 \"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+(?!\\\\S)|\\\\S+\"},\"behavior\":\"Isolated\",\"invert\":false},\
                 \"post_processor\":null,\"decoder\":null,";
    for (name, text) in [
        (
            "ok-words",
            json(
                &words,
                "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"post_processor\":null,\"decoder\":null,",
            ),
        ),
        ("ok-pairs", json(pairs, bytes)),
        ("ok-pieces", json(pieces, bert)),
        ("ok-unigram", json(unigram, meta)),
        ("ok-split", json(&words, split)),
    ] {
        list.seed("tokenizer", name, [text.as_bytes(), b"\0one two,  one\xc3\xa9 two"].concat());
    }
    list.seed("tokenizer", "bad-none", "{\"version\":\"1.0\"}");
    list.seed("tokenizer", "bad-no-tokens", json("{\"type\":\"WordLevel\",\"vocab\":{},\"unk_token\":\"[UNK]\"}", ""));
    // Each level is a call of a decoder.
    let within = |open: &str, close: &str, levels: usize| format!("{}{}", open.repeat(levels), close.repeat(levels));
    let normalizers = within("{\"type\":\"Sequence\",\"normalizers\":[", "]}", 4000);
    list.crash("tokenizer", "bad-deep-normalizers", json(&words, &format!("\"normalizer\":{normalizers},")));
    let rule = format!(
        "\"pre_tokenizer\":{{\"type\":\"Split\",\"pattern\":{{\"Regex\":\"{}\"}},\"behavior\":\"Isolated\",\"invert\":false}},",
        within("(", ")", 4000)
    );
    list.crash("tokenizer", "bad-deep-rule", json(&words, &rule));
    list.crash("tokenizer", "bad-deep", format!("{{\"model\":{}", "[".repeat(4000)));
}

fn bodies(list: &mut List) {
    let mut seed = |name: &str, path: u8, kind: &str, body: &[u8]| {
        list.seed("body", name, [&[path], kind.as_bytes(), b"\n", body].concat());
    };
    let json = "application/json";
    let form = "multipart/form-data; boundary=part";
    let part = |name: &str, content: &str| {
        format!(
            "--part\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n{content}\r\n--part--\r\n"
        )
    };
    let sevens = |count: usize| vec!["7"; count].join(",");
    seed(
        "ok-image-json",
        0,
        json,
        format!("{{\"instances\":[[[{}]]]}}", vec![format!("[{}]", sevens(8)); 8].join(",")).as_bytes(),
    );
    seed(
        "ok-row",
        1,
        json,
        b"{\"instances\":[{\"a\":1,\"b\":\"x\",\"when\":\"2024-01-01\"},{\"a\":null,\"b\":\"z\",\"when\":null}]}",
    );
    seed("bad-row-twice", 1, json, b"{\"instances\":[{\"a\":1,\"b\":\"x\",\"when\":null,\"a\":2}]}");
    seed("ok-rows", 1, "text/csv", b"a,b,when\n1,x,2024-01-01\n,z,\n");
    seed("ok-rows-with-tabs", 1, "text/tab-separated-values", b"a\tb\twhen\n1\tx\t2024-01-01\n");
    seed("ok-rows-form", 1, form, part("rows.csv", "a,b,when\n1,x,2024-01-01").as_bytes());
    seed("ok-text", 2, json, b"{\"instances\":[\"good words\",\"\"]}");
    seed("ok-lines", 2, "text/plain", b"good words\nbad\n");
    let tensor = |name: &str, shape: &str, datatype: &str, more: &str| {
        format!(
            "{{\"id\":\"1\",\"inputs\":[{{\"name\":\"{name}\",\"shape\":{shape},\"datatype\":\"{datatype}\",{more}}}]}}"
        )
    };
    seed("ok-tensor", 3, "", tensor("inputs", "[1,1,8,8]", "UINT8", &format!("\"data\":[{}]", sevens(64))).as_bytes());
    let head = tensor("inputs", "[1,1,8,8]", "UINT8", "\"parameters\":{\"binary_data_size\":64}");
    seed("ok-binary", 3, &head.len().to_string(), &[head.as_bytes(), &[0; 64]].concat());
    seed("bad-binary-short", 3, &head.len().to_string(), &[head.as_bytes(), &[0; 63]].concat());
    seed("bad-length", 3, "999999", head.as_bytes());
    seed("bad-tensors-in-a-list", 3, "", b"[null,{},[],[]]");
    seed("bad-shape", 3, "", tensor("inputs", "[-1,1,8,8]", "UINT8", "\"data\":[]").as_bytes());
    seed("tensor-of-rows", 4, "", tensor("inputs", "[1,9]", "FP32", &format!("\"data\":[{}]", sevens(9))).as_bytes());
    seed(
        "ok-completion",
        6,
        json,
        b"{\"model\":\"words\",\"prompt\":\"one\",\"max_tokens\":2,\"temperature\":0,\"seed\":1}",
    );
    seed("ok-completions", 6, json, b"{\"model\":\"words\",\"prompt\":[\"one\",\"two\"],\"n\":1,\"max_tokens\":1,\"stop\":[\"e\"],\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    seed(
        "bad-chat",
        7,
        json,
        b"{\"model\":\"words\",\"messages\":[{\"role\":\"user\",\"content\":\"one\"}],\"max_tokens\":1}",
    );
    // A model with a head, and two folds.
    seed("ok-heads", 8, "text/csv", b"a,when\n1,2024-01-01\n,\n");
    let inputs = tensor("inputs", "[1,6]", "FP32", &format!("\"data\":[{}]", sevens(6)));
    let inputs = inputs.strip_suffix('}').expect("an object");
    let of_heads = |outputs: &str| format!("{inputs},\"outputs\":[{outputs}]}}");
    let two = "{\"name\":\"kind\",\"parameters\":{\"binary_data\":true}},{\"name\":\"outputs\"}";
    seed("ok-tensors-of-heads", 9, "", of_heads(two).as_bytes());
    seed("bad-tensors-twice", 9, "", of_heads("{\"name\":\"outputs\"},{\"name\":\"outputs\"}").as_bytes());
    // 10 would be the end of the line.
    const FOLDS: u8 = 10 + 12;
    seed("ok-folds", FOLDS, json, b"{\"instances\":[{\"a\":1,\"b\":\"x\",\"when\":\"2024-01-01\"},[null,\"z\",null]]}");
    seed("ok-folds-table", FOLDS, "text/csv", b"a,b,when\n1,x,2024-01-01\n,z,\n");
    seed("bad-folds-cells", FOLDS, json, b"{\"instances\":[[1,\"x\"]]}");
    seed("bad-tensors-of-folds", 11, "", of_heads(two).as_bytes());
    seed("bad-type", 0, "text/csv", b"1,2");
    seed("bad-no-body", 1, json, b"");
    seed("bad-form", 1, form, b"--part\r\n");
    list.crash("body", "bad-deep", [&b"\x01application/json\n{\"instances\":"[..], &vec![b'['; 4000]].concat());
    list.crash("body", "bad-many", [&b"\x02text/plain\n"[..], &b"a\n".repeat(17)].concat());
    list.crash(
        "body",
        "bad-shape",
        [&b"\x03\n"[..], tensor("inputs", "[4294967296,4294967296,8,8]", "UINT8", "\"data\":[1]").as_bytes()].concat(),
    );
}
