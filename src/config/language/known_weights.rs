//! The table of weights that are known by name: which file a name stands for, how large it is, its SHA-256, and its licence. What is not known for sure
//! is left out.

use Licence::{Apache2, Bsd3, CcByNc4, Mit};
use std::fmt;

/// Weights that are listed.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The model: `resnet18`, `owner/model`.
    pub model: &'static str,
    /// Which of its weights, as torchvision names them. The hub's have none.
    pub tag: &'static str,
    /// The file's name.
    pub file: &'static str,
    /// The file's size, if it is known.
    pub size: Option<Size>,
    /// The first digits of its SHA-256, or all of them; empty where they are not known.
    pub sha256: &'static str,
    /// Its licence, as the publisher states it.
    pub licence: Licence,
    /// What the weights have learnt from.
    pub learnt_from: &'static str,
}

/// A size as its publisher states it: rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bytes, about.
    pub about: u64,
    /// How far the file's size may be from that.
    within: u64,
}

impl Size {
    /// torchvision states MiB with three decimals.
    const fn thousandths_of_mib(thousandths: u64) -> Size {
        Size { about: (thousandths * (1 << 20) + 500) / 1000, within: 525 }
    }

    /// The hub states three digits of a number of MB.
    const fn tenths_of_mb(tenths: u64) -> Size {
        let within = if tenths < 1000 { 50_000 } else { 500_000 };
        Size { about: tenths * 100_000, within }
    }

    /// Whether a file of `bytes` bytes may be the one.
    pub fn fits(self, bytes: u64) -> bool {
        self.about.abs_diff(bytes) <= self.within
    }
}

/// Three digits, as many as are known of all.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.about as f64 / f64::from(1 << 20);
        let decimals = if mib < 10.0 { 2 } else { usize::from(mib < 100.0) };
        f.pad(&format!("{mib:.decimals$} MiB"))
    }
}

/// Licences that publishers of weights state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Licence {
    /// That of torchvision's code. It says nothing else of its weights but that the data they are made from may have terms.
    Bsd3,
    /// Of weights that others have made, and torchvision hands on.
    CcByNc4,
    /// Apache License 2.0.
    Apache2,
    /// MIT License.
    Mit,
}

impl Licence {
    /// Its SPDX identifier.
    pub fn spdx(self) -> &'static str {
        match self {
            Licence::Bsd3 => "BSD-3-Clause",
            Licence::CcByNc4 => "CC-BY-NC-4.0",
            Licence::Apache2 => "Apache-2.0",
            Licence::Mit => "MIT",
        }
    }
}

/// A file of torchvision. After the last `-` it has the first digits of its SHA-256.
const fn torchvision(model: &'static str, tag: &'static str, file: &'static str, mib: u64) -> Known {
    let size = Some(Size::thousandths_of_mib(mib));
    Known { model, tag, file, size, sha256: digits(file), licence: Bsd3, learnt_from: "ImageNet-1K" }
}

/// What a file's name has between the last `-` and `.pth`.
const fn digits(file: &'static str) -> &'static str {
    let (name, _) = file.split_at(file.len() - ".pth".len());
    let mut at = name.len();
    while name.as_bytes()[at - 1] != b'-' {
        at -= 1;
    }
    name.split_at(at).1
}

/// Files of torchvision 0.26, with the sizes that it states. The first of a model is what it has for default. GoogLeNet is missing: its file has two more
/// classifiers, and expects images that are normalised in another way.
pub(super) const TORCHVISION_FILES: [Known; 30] = [
    torchvision("alexnet", "IMAGENET1K_V1", "alexnet-owt-7be5be79.pth", 233_087),
    torchvision("convnext_tiny", "IMAGENET1K_V1", "convnext_tiny-983f1562.pth", 109_119),
    torchvision("densenet121", "IMAGENET1K_V1", "densenet121-a639ec97.pth", 30_845),
    torchvision("efficientnet_b0", "IMAGENET1K_V1", "efficientnet_b0_rwightman-7f5810bc.pth", 20_451),
    torchvision("mnasnet1_0", "IMAGENET1K_V1", "mnasnet1.0_top1_73.512-f206786ef8.pth", 16_915),
    torchvision("mobilenet_v2", "IMAGENET1K_V2", "mobilenet_v2-7ebf99e0.pth", 13_598),
    torchvision("mobilenet_v2", "IMAGENET1K_V1", "mobilenet_v2-b0353104.pth", 13_555),
    torchvision("mobilenet_v3_large", "IMAGENET1K_V2", "mobilenet_v3_large-5c1a4163.pth", 21_107),
    torchvision("mobilenet_v3_large", "IMAGENET1K_V1", "mobilenet_v3_large-8738ca79.pth", 21_114),
    torchvision("mobilenet_v3_small", "IMAGENET1K_V1", "mobilenet_v3_small-047dcff4.pth", 9_829),
    torchvision("regnet_y_400mf", "IMAGENET1K_V2", "regnet_y_400mf-e6988f5f.pth", 16_806),
    torchvision("regnet_y_400mf", "IMAGENET1K_V1", "regnet_y_400mf-c65dace8.pth", 16_806),
    torchvision("resnet101", "IMAGENET1K_V2", "resnet101-cd907fc2.pth", 170_530),
    torchvision("resnet101", "IMAGENET1K_V1", "resnet101-63fe2227.pth", 170_511),
    torchvision("resnet18", "IMAGENET1K_V1", "resnet18-f37072fd.pth", 44_661),
    torchvision("resnet34", "IMAGENET1K_V1", "resnet34-b627a593.pth", 83_275),
    torchvision("resnet50", "IMAGENET1K_V2", "resnet50-11ad3fa6.pth", 97_790),
    torchvision("resnet50", "IMAGENET1K_V1", "resnet50-0676ba61.pth", 97_781),
    torchvision("resnext50_32x4d", "IMAGENET1K_V2", "resnext50_32x4d-1a0047aa.pth", 95_833),
    torchvision("resnext50_32x4d", "IMAGENET1K_V1", "resnext50_32x4d-7cdf4587.pth", 95_789),
    torchvision("shufflenet_v2_x1_0", "IMAGENET1K_V1", "shufflenetv2_x1-5666bf0f80.pth", 8_791),
    torchvision("squeezenet1_1", "IMAGENET1K_V1", "squeezenet1_1-b8a52dc0.pth", 4_729),
    torchvision("swin_t", "IMAGENET1K_V1", "swin_t-704ceda3.pth", 108_190),
    torchvision("vgg11", "IMAGENET1K_V1", "vgg11-8a719046.pth", 506_840),
    torchvision("vgg11_bn", "IMAGENET1K_V1", "vgg11_bn-6002323d.pth", 506_881),
    torchvision("vgg16", "IMAGENET1K_V1", "vgg16-397923af.pth", 527_796),
    torchvision("vit_b_16", "IMAGENET1K_V1", "vit_b_16-c867db91.pth", 330_285),
    Known {
        licence: CcByNc4,
        learnt_from: "images of Instagram, the last layer ImageNet-1K",
        ..torchvision("vit_b_16", "IMAGENET1K_SWAG_LINEAR_V1", "vit_b_16_lc_swag-4e70ced5.pth", 330_285)
    },
    torchvision("wide_resnet50_2", "IMAGENET1K_V2", "wide_resnet50_2-9ba9bcbe.pth", 263_124),
    torchvision("wide_resnet50_2", "IMAGENET1K_V1", "wide_resnet50_2-95faca4d.pth", 131_820),
];

/// The file of a model on the hub.
pub(super) const MODEL: &str = "model.safetensors";

const fn hub(
    model: &'static str,
    size: Option<Size>,
    sha256: &'static str,
    licence: Licence,
    learnt_from: &'static str,
) -> Known {
    Known { model, tag: "", file: MODEL, size, sha256, licence, learnt_from }
}

/// Models of Hugging Face's hub that the documentation names, with what their pages state.
pub(super) const HUB_MODELS: [Known; 7] = [
    hub(
        "distilbert/distilbert-base-uncased",
        Some(Size::tenths_of_mb(2680)),
        "5e3f1108e3cb34ee048634875d8482665b65ac713291a7e32396fb18f6ff0063",
        Apache2,
        "English Wikipedia and books",
    ),
    hub(
        "google-bert/bert-base-uncased",
        Some(Size::tenths_of_mb(4400)),
        "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
        Apache2,
        "English Wikipedia and books",
    ),
    hub("HuggingFaceTB/SmolLM2-135M", None, "", Apache2, "texts of the web, code and mathematics"),
    hub(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        Some(Size::tenths_of_mb(2690)),
        "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
        Apache2,
        "texts of the web, code and mathematics, and conversations",
    ),
    hub(
        "openai-community/gpt2",
        Some(Size::tenths_of_mb(5480)),
        "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
        Mit,
        "pages of the web",
    ),
    hub("Qwen/Qwen2-0.5B", Some(Size::tenths_of_mb(9880)), "", Apache2, "not stated"),
    hub(
        "timm/resnet18.a1_in1k",
        Some(Size::tenths_of_mb(468)),
        "80c49dee3da4822c009c5a7fe591e9223c5a2cfcf95a4067ca4dfb5a7b89c612",
        Apache2,
        "ImageNet-1K",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        for known in TORCHVISION_FILES.iter().chain(&HUB_MODELS) {
            assert!(known.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{known:?}");
            assert!(!known.learnt_from.is_empty(), "{known:?}");
        }
        assert!(TORCHVISION_FILES.iter().all(|known| known.sha256.len() >= 8 && known.size.is_some()));
        assert!(HUB_MODELS.iter().all(|known| [0, 64].contains(&known.sha256.len()) && known.model.contains('/')));
        assert_eq!(digits("mnasnet1.0_top1_73.512-f206786ef8.pth"), "f206786ef8");
    }

    /// Files whose sizes are known to the byte: torchvision's ResNet-18, and the hub's GPT-2.
    #[test]
    fn sizes_are_those_of_the_files() {
        let of = |table: &[Known], name: &str| table.iter().find(|known| known.model == name).unwrap().size.unwrap();
        let resnet18 = of(&TORCHVISION_FILES, "resnet18");
        assert!(resnet18.fits(46_830_571) && !resnet18.fits(46_827_520) && !resnet18.fits(0));
        let gpt2 = of(&HUB_MODELS, "openai-community/gpt2");
        assert!(gpt2.fits(548_105_171) && !gpt2.fits(548_600_000));
    }
}
