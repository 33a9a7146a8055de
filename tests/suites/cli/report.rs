//! `runner report`: one page that needs nothing but itself.

use super::photos;
use super::support::{Place, plain};

/// The tags of a page in their order, without what is in scripts and styles; every one that is opened must be closed.
pub fn tags(page: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        let name: String =
            tag.trim_start_matches('/').chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '!').collect();
        rest = &rest[end + 1..];
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "closed after {:?}", seen.last());
            continue;
        }
        seen.push(tag.to_owned());
        if ["script", "style"].contains(&name.as_str()) {
            rest = &rest[rest.find(&format!("</{name}>")).expect("it is closed") + name.len() + 3..];
        } else if !tag.ends_with('/')
            && !["!doctype", "meta", "link", "img", "input", "br", "wbr"].contains(&name.as_str())
        {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    seen
}

#[test]
fn a_page_has_all_and_needs_nothing() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out runs/a --set train.epochs=1");
    place.ok("train c.toml --quiet --out runs/b --set optimizer.lr=1e-2");
    let nowhere = place.fails("report runs/a --out none/r.html", 2);
    assert!(nowhere.contains("there is no folder `none`") && !nowhere.contains("computing"), "{nowhere}");
    let done = place.ok("report runs/a runs/b --out r.html --threads 1");
    assert!(done.err.is_empty() && done.out.contains("the report is in `r.html`"), "{done:?}");
    let page = place.read("r.html");
    let tags = tags(&page);
    let page = page.replace("<wbr>", "");
    // Nothing from elsewhere, and no script but those of the page.
    for tag in &tags {
        for attribute in ["src=\"", "href=\""] {
            let Some((_, value)) = tag.split_once(attribute) else { continue };
            assert!(value.starts_with('#') || value.starts_with("data:"), "{tag}");
        }
    }
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 3, "the data, what draws, what chooses");
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let data = page.split("id=\"curves\">").nth(1).unwrap().split("</script>").next().unwrap();
    let curves: serde_json::Value = serde_json::from_str(data).unwrap();
    let drawn = curves[0]["curves"].as_array().unwrap();
    // Those of a run have one colour, those of training are dashed.
    let of: Vec<_> =
        drawn.iter().map(|curve| (curve["run"].as_u64().unwrap(), curve["train"].as_bool().unwrap())).collect();
    assert_eq!(of, [(0, true), (1, true), (0, false), (1, false)]);
    assert!(page.contains("The best run is <strong>runs/"), "which was best");
    // Where links lead, something is.
    for tag in tags.iter().filter(|tag| tag.contains("href=\"#")) {
        let to = tag.split("href=\"#").nth(1).unwrap().split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{to}\"")), "{tag}");
    }
    for what in [
        "Figures of each class",
        "Confusion matrix",
        "src=\"data:image/png;base64,",
        "href=\"#cell-1-",
        "Memory that training takes on",
        "Operations, the slowest first",
        "optimizer.lr",
        "<td>command line</td>",
        "<td>configuration</td>",
        "<td>default</td>",
        "Best figures, with their epochs",
        "The MIT License",
    ] {
        assert!(page.contains(what), "{what}");
    }
    let origin = |key: &str| {
        let row = page.split(&format!("<th scope=\"row\">{key}</th>")).last().unwrap();
        row.split("</tr>").next().unwrap().rsplit("<td>").next().unwrap().split('<').next().unwrap().to_owned()
    };
    assert_eq!(
        ["optimizer.lr", "train.epochs", "optimizer.eps", "data.source"].map(origin),
        ["command line", "configuration", "default", "configuration"]
    );
    // Without what takes time; a run whose data is gone still has a report, which says what it lacks.
    place.ok("report runs/a --out s.html --no-timing --no-evaluation");
    let less = place.read("s.html");
    assert!(!less.contains("Confusion matrix") && !less.contains("Operations,") && less.contains("Layers"));
    let text =
        place.ok("report runs/b --out t.html --no-timing --json --set data.source=mnist --set data.root=nowhere");
    assert!(text.err.contains("is without the evaluation"), "{text:?}");
    assert!(text.json()["bytes"].as_u64().unwrap() > 50_000, "{text:?}");
    let err = place.fails("report runs/a --out report.pdf", 2);
    assert!(err.contains("the format is .html"), "{err}");
}

/// Classes, folders and notes may be called anything.
#[test]
fn names_are_text_and_no_html() {
    let place = Place::new();
    let bad = "<script>alert('x')</script><img src=x onerror=alert(1)>";
    for (class, shade) in [("<script>alert(1)<", 10u8), ("\"><b>&", 200)] {
        for split in ["train", "val"] {
            for n in 0..4u8 {
                let path = place.write(&format!("photos/{split}/{}/{n}.png", class.replace('/', "")), "");
                image::GrayImage::from_pixel(8, 8, image::Luma([shade + n])).save(path).unwrap();
            }
        }
    }
    place.write(
        "c.toml",
        "device = \"cpu\"\n[data]\nsource = \"image_folder\"\nroot = \"photos\"\nbatch_size = 4\ntransforms = [{ type = \"resize\", size = 8 }, { type = \"center_crop\", size = 8 }]\n\
         [model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 1e-9\n[train]\nepochs = 1\n",
    );
    let trained = place.run("train c.toml --quiet --out run");
    assert_eq!(trained.code, Some(0), "{trained:?}");
    let more = format!("{}\n", serde_json::json!({ "kind": "note", "note": bad }));
    let metrics = place.read("run/metrics.jsonl") + &more;
    place.write("run/metrics.jsonl", metrics);
    place.ok("report run --out r.html --no-timing");
    let page = place.read("r.html");
    let tags = tags(&page);
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 3);
    assert!(!tags.iter().any(|tag| tag.starts_with("b>") || *tag == "b" || tag.contains("onerror")), "{tags:#?}");
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;") && page.contains("&lt;img src=x onerror"),
        "written as they are"
    );
}

/// A mistake has the name of its file, where it has one.
#[test]
fn mistakes_have_the_names_of_their_files() {
    let place = photos::place("", photos::TRANSFORMS);
    place.ok("train c.toml --quiet --out r --set train.epochs=1 --set optimizer.lr=1e-9");
    place.ok("report r --out r.html --no-timing");
    let page = place.read("r.html").replace("<wbr>", "");
    // All have one class: those of the other are mistakes.
    let named = |class: &str, of: [u32; 3]| {
        of.iter().all(|n| page.contains(&format!(">{class}/{n}.{}<br>", ["png", "jpg", "bmp"][*n as usize % 3])))
    };
    assert!(named("red", [14, 16, 18]) != named("blue", [15, 17, 19]));
    assert!(!page.contains("sample 1"), "by number");
}
