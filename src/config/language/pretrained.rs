//! Weights by name: `torchvision/resnet18`, `hf:owner/model`. A name stands for a file in the user's caches, and for the addresses
//! that it can be had from; nothing here speaks to the network.

use super::sections::Rename;
use crate::config::nearest;
use crate::files::caches;
use std::path::{Component, Path, PathBuf};

/// What a name begins with that stands for weights of torchvision.
const TORCHVISION: &str = "torchvision/";
/// What a name begins with that stands for a file of Hugging Face's hub.
const HUB: &str = "hf:";
/// The file of a model on the hub.
const MODEL: &str = "model.safetensors";
/// A version of what is on the hub, if none is named.
const MAIN: &str = "main";

/// Files of torchvision 0.26: the model, its weights as torchvision names them, and the file. The first of a model is what it has for
/// default. Behind the last `-` a file has the first digits of its SHA-256, by which PyTorch checks it, too. GoogLeNet is missing: its
/// file has two more classifiers, and expects images that are normalised in another way.
const FILES: [(&str, &str, &str); 30] = [
    ("alexnet", "IMAGENET1K_V1", "alexnet-owt-7be5be79.pth"),
    ("convnext_tiny", "IMAGENET1K_V1", "convnext_tiny-983f1562.pth"),
    ("densenet121", "IMAGENET1K_V1", "densenet121-a639ec97.pth"),
    ("efficientnet_b0", "IMAGENET1K_V1", "efficientnet_b0_rwightman-7f5810bc.pth"),
    ("mnasnet1_0", "IMAGENET1K_V1", "mnasnet1.0_top1_73.512-f206786ef8.pth"),
    ("mobilenet_v2", "IMAGENET1K_V2", "mobilenet_v2-7ebf99e0.pth"),
    ("mobilenet_v2", "IMAGENET1K_V1", "mobilenet_v2-b0353104.pth"),
    ("mobilenet_v3_large", "IMAGENET1K_V2", "mobilenet_v3_large-5c1a4163.pth"),
    ("mobilenet_v3_large", "IMAGENET1K_V1", "mobilenet_v3_large-8738ca79.pth"),
    ("mobilenet_v3_small", "IMAGENET1K_V1", "mobilenet_v3_small-047dcff4.pth"),
    ("regnet_y_400mf", "IMAGENET1K_V2", "regnet_y_400mf-e6988f5f.pth"),
    ("regnet_y_400mf", "IMAGENET1K_V1", "regnet_y_400mf-c65dace8.pth"),
    ("resnet101", "IMAGENET1K_V2", "resnet101-cd907fc2.pth"),
    ("resnet101", "IMAGENET1K_V1", "resnet101-63fe2227.pth"),
    ("resnet18", "IMAGENET1K_V1", "resnet18-f37072fd.pth"),
    ("resnet34", "IMAGENET1K_V1", "resnet34-b627a593.pth"),
    ("resnet50", "IMAGENET1K_V2", "resnet50-11ad3fa6.pth"),
    ("resnet50", "IMAGENET1K_V1", "resnet50-0676ba61.pth"),
    ("resnext50_32x4d", "IMAGENET1K_V2", "resnext50_32x4d-1a0047aa.pth"),
    ("resnext50_32x4d", "IMAGENET1K_V1", "resnext50_32x4d-7cdf4587.pth"),
    ("shufflenet_v2_x1_0", "IMAGENET1K_V1", "shufflenetv2_x1-5666bf0f80.pth"),
    ("squeezenet1_1", "IMAGENET1K_V1", "squeezenet1_1-b8a52dc0.pth"),
    ("swin_t", "IMAGENET1K_V1", "swin_t-704ceda3.pth"),
    ("vgg11", "IMAGENET1K_V1", "vgg11-8a719046.pth"),
    ("vgg11_bn", "IMAGENET1K_V1", "vgg11_bn-6002323d.pth"),
    ("vgg16", "IMAGENET1K_V1", "vgg16-397923af.pth"),
    ("vit_b_16", "IMAGENET1K_V1", "vit_b_16-c867db91.pth"),
    ("vit_b_16", "IMAGENET1K_SWAG_LINEAR_V1", "vit_b_16_lc_swag-4e70ced5.pth"),
    ("wide_resnet50_2", "IMAGENET1K_V2", "wide_resnet50_2-9ba9bcbe.pth"),
    ("wide_resnet50_2", "IMAGENET1K_V1", "wide_resnet50_2-95faca4d.pth"),
];

/// Weights that have a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pretrained {
    /// The name, as it is written.
    pub name: String,
    /// Who offers them.
    pub origin: Origin,
    /// The folder that they lie in, within that of its origin: `owner/model/resolve/main`; empty for torchvision.
    pub folder: String,
    /// The file's name.
    pub file: String,
    /// The first digits of its SHA-256, if they are known.
    pub sha256: Option<&'static str>,
}

/// Who offers weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// torchvision.
    Torchvision,
    /// Hugging Face's hub.
    Hub,
}

impl Origin {
    /// The variable that names another address, and the usual one.
    pub fn address(self) -> (&'static str, &'static str) {
        match self {
            Origin::Torchvision => ("RUNNER_TORCHVISION", "https://download.pytorch.org/models"),
            // The name that Hugging Face's own programs know.
            Origin::Hub => ("HF_ENDPOINT", "https://huggingface.co"),
        }
    }

    /// What the user should know of their licence.
    pub fn licence(self) -> &'static str {
        match self {
            Origin::Torchvision => {
                "torchvision's weights may have terms of their own, from the data that they were trained on"
            }
            Origin::Hub => "the model's page has its licence",
        }
    }
}

impl Pretrained {
    /// What `text` names, if it is such a name.
    ///
    /// # Errors
    /// It looks like one, and names nothing: what is wrong, and what to do.
    pub fn parse(text: &str) -> Option<Result<Pretrained, Unknown>> {
        if let Some(name) = text.strip_prefix(TORCHVISION) {
            return Some(torchvision(text, name));
        }
        Some(hub(text, text.strip_prefix(HUB)?))
    }

    /// The names of all that torchvision offers.
    pub fn all() -> impl Iterator<Item = String> {
        FILES.iter().map(|(model, tag, _)| format!("{TORCHVISION}{model}@{tag}"))
    }

    /// Where the file is kept; `None` where the environment names no place for caches.
    pub fn path(&self) -> Option<PathBuf> {
        Some(root()?.join(self.kept()))
    }

    /// The same, within the folder of all weights.
    fn kept(&self) -> PathBuf {
        match self.origin {
            Origin::Torchvision => Path::new("torchvision").join(&self.file),
            Origin::Hub => Path::new("hf").join(self.folder.replacen("/resolve/", "/", 1)).join(&self.file),
        }
    }

    /// The weights that are kept at `path`, if that is such a place.
    pub fn at(path: &Path) -> Option<Pretrained> {
        let within = path.strip_prefix(root()?).ok()?;
        let words: Vec<&str> = within.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
        let name = match &words[..] {
            ["torchvision", file] => {
                let (model, tag, _) = FILES.iter().find(|(.., known)| known == file)?;
                let usual = FILES.iter().find(|(known, ..)| known == model)?.1;
                let tag = if *tag == usual { String::new() } else { format!("@{tag}") };
                format!("{TORCHVISION}{model}{tag}")
            }
            ["hf", owner, model, revision, file @ ..] if !file.is_empty() => {
                let revision = if *revision == MAIN { String::new() } else { format!("@{revision}") };
                let file = if file == [MODEL] { String::new() } else { format!("/{}", file.join("/")) };
                format!("{HUB}{owner}/{model}{revision}{file}")
            }
            _ => return None,
        };
        Pretrained::parse(&name)?.ok()
    }

    /// Another file of the same model on the hub.
    pub fn beside(&self, file: &str) -> Pretrained {
        Pretrained { file: file.to_owned(), sha256: None, ..self.clone() }
    }

    /// Other names for its tensors: those of DenseNet are older than its layers' names, and torchvision changes them as it reads them.
    pub fn renames(&self) -> Vec<Rename> {
        if self.origin != Origin::Torchvision || !self.file.starts_with("densenet") {
            return Vec::new();
        }
        let of = |layer: &str| Rename { from: format!("*.{layer}.*"), to: format!("*.{}.*", layer.replace('.', "")) };
        ["norm.1", "conv.1", "norm.2", "conv.2"].map(of).into()
    }

    /// The address of the folder that the file is in.
    pub fn address(&self) -> String {
        let (variable, usual) = self.origin.address();
        let set = std::env::var(variable).ok().filter(|set| !set.is_empty());
        let base = set.as_deref().unwrap_or(usual).trim_end_matches('/');
        match self.folder.as_str() {
            "" => base.to_owned(),
            folder => format!("{base}/{folder}"),
        }
    }
}

/// The folder of all weights that have names.
fn root() -> Option<PathBuf> {
    Some(caches::folder()?.join("weights"))
}

/// A name that names nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

fn torchvision(written: &str, name: &str) -> Result<Pretrained, Unknown> {
    let (model, tag) = name.split_once('@').map_or((name, None), |(model, tag)| (model, Some(tag)));
    let mut of_model = FILES.iter().filter(|(known, ..)| *known == model).peekable();
    if of_model.peek().is_none() {
        let help = match nearest(model, FILES.iter().map(|(known, ..)| *known)) {
            Some(near) => format!("did you mean `{TORCHVISION}{near}`?"),
            None => "`runner models --weights` lists all".to_owned(),
        };
        return Err(Unknown { what: format!("there are no weights `{written}`"), help });
    }
    let tags: Vec<&str> = of_model.clone().map(|(_, tag, _)| *tag).collect();
    let found = of_model.find(|(_, known, _)| tag.is_none_or(|tag| tag.eq_ignore_ascii_case(known)));
    let Some((.., file)) = found else {
        let what = format!("torchvision's `{model}` has no weights `{}`", tag.unwrap_or_default());
        return Err(Unknown { what, help: format!("it has {}", tags.join(", ")) });
    };
    let digits = file.trim_end_matches(".pth").rsplit('-').next();
    Ok(Pretrained {
        name: written.to_owned(),
        origin: Origin::Torchvision,
        folder: String::new(),
        file: (*file).to_owned(),
        sha256: digits,
    })
}

fn hub(written: &str, name: &str) -> Result<Pretrained, Unknown> {
    let form = "a name of the hub is `hf:OWNER/MODEL`, and may go on with `@REVISION` and `/FILE`";
    let unknown = || Unknown { what: format!("`{written}` names no model of the hub"), help: form.to_owned() };
    let mut words = name.splitn(3, '/');
    let (owner, model) = words.next().zip(words.next()).ok_or_else(unknown)?;
    let file = words.next().unwrap_or(MODEL);
    let (model, revision) = model.split_once('@').unwrap_or((model, MAIN));
    let simple = |word: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !word.is_empty() && word.chars().all(fits) && !word.chars().all(|c| c == '.')
    };
    let is_inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    if ![owner, model, revision].into_iter().chain(file.split('/')).all(simple) || !is_inside {
        return Err(unknown());
    }
    let (folder, file) = match file.rsplit_once('/') {
        Some((inner, file)) => (format!("{owner}/{model}/resolve/{revision}/{inner}"), file),
        None => (format!("{owner}/{model}/resolve/{revision}"), file),
    };
    Ok(Pretrained { name: written.to_owned(), origin: Origin::Hub, folder, file: file.to_owned(), sha256: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Pretrained {
        Pretrained::parse(text).unwrap().unwrap()
    }

    fn refused(text: &str) -> Unknown {
        Pretrained::parse(text).unwrap().unwrap_err()
    }

    #[test]
    fn names_stand_for_files() {
        let found = read("torchvision/resnet50");
        assert_eq!((found.file.as_str(), found.sha256), ("resnet50-11ad3fa6.pth", Some("11ad3fa6")));
        assert_eq!(read("torchvision/resnet50@imagenet1k_v1").file, "resnet50-0676ba61.pth");
        assert_eq!(read("torchvision/mnasnet1_0").sha256, Some("f206786ef8"));
        let found = read("hf:timm/resnet18.a1_in1k");
        assert_eq!((found.folder.as_str(), found.file.as_str()), ("timm/resnet18.a1_in1k/resolve/main", MODEL));
        let found = read("hf:me/model@v1.0/unet/weights.safetensors");
        assert_eq!((found.folder.as_str(), found.file.as_str()), ("me/model/resolve/v1.0/unet", "weights.safetensors"));
        for path in ["resnet18.pth", "./torchvision/resnet18", "data/hf/model", "hf/model.safetensors"] {
            assert_eq!(Pretrained::parse(path), None, "{path}");
        }
    }

    #[test]
    fn old_names_of_densenet_become_those_of_its_layers() {
        let rules = read("torchvision/densenet121").renames();
        let renamed = |name: &str| rules.iter().find_map(|rule| rule.apply(name));
        for (old, new) in [
            ("features.denseblock1.denselayer2.norm.1.weight", "features.denseblock1.denselayer2.norm1.weight"),
            (
                "features.denseblock4.denselayer16.norm.2.running_var",
                "features.denseblock4.denselayer16.norm2.running_var",
            ),
            ("features.denseblock2.denselayer12.conv.2.weight", "features.denseblock2.denselayer12.conv2.weight"),
        ] {
            assert_eq!(renamed(old).as_deref(), Some(new));
        }
        for same in ["features.transition1.norm.weight", "features.conv0.weight", "classifier.bias"] {
            assert_eq!(renamed(same), None, "{same}");
        }
        assert!(read("torchvision/resnet18").renames().is_empty());
    }

    #[test]
    fn names_of_nothing_are_refused() {
        assert_eq!(refused("torchvision/resnet19").help, "did you mean `torchvision/resnet18`?");
        assert_eq!(refused("torchvision/zzzz").help, "`runner models --weights` lists all");
        assert_eq!(refused("torchvision/resnet50@V3").help, "it has IMAGENET1K_V2, IMAGENET1K_V1");
        for name in
            ["hf:", "hf:gpt2", "hf:/gpt2", "hf:a/../b", "hf:a/b@../c", "hf:a/b/../../c", "hf:a/b//c", "hf:a/b c"]
        {
            assert!(refused(name).what.contains("names no model"), "{name}");
        }
    }

    #[test]
    fn every_place_has_its_name() {
        for (model, tag, file) in FILES {
            let found = read(&format!("{TORCHVISION}{model}@{tag}"));
            assert_eq!(found.file, file);
            assert!(
                found.sha256.is_some_and(|digits| digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
            );
            // Where a home is.
            if let Some(path) = found.path() {
                assert_eq!(Pretrained::at(&path).map(|named| named.file), Some(found.file));
            }
        }
        for name in
            ["torchvision/resnet50", "torchvision/resnet50@IMAGENET1K_V1", "hf:a/b", "hf:a/b@v2/c/d.safetensors"]
        {
            let found = read(name);
            if let Some(path) = found.path() {
                assert_eq!(Pretrained::at(&path), Some(found));
            }
        }
        assert_eq!(Pretrained::at(Path::new("/elsewhere/torchvision/resnet18-f37072fd.pth")), None);
    }
}
