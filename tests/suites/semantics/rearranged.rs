//! Mistakes in layers that give values another shape or order, take parts of them, or belong to nets of blocks.

use super::errors::{images, rendered, vectors};

/// What is said of each layer at the head of a net for images of 3×32×32, or for vectors of 13 numbers.
fn all_rendered(config: fn(&str) -> String, layers: &[&str]) -> String {
    let end = "  \"flatten\",\n  { type = \"linear\", out_features = 10 },";
    let all: Vec<String> = layers.iter().map(|layer| rendered(&config(&format!("  {layer},\n{end}")))).collect();
    all.join("\n==========\n")
}

#[test]
fn shapes_that_do_not_fit() {
    insta::assert_snapshot!(all_rendered(
        images,
        &[
            r#"{ type = "reshape", shape = [7, -1] }"#,
            r#"{ type = "permute", dims = [0, 2, 1] }"#,
            r#"{ type = "transpose", dim0 = 0, dim1 = 1 }"#,
            r#"{ type = "unflatten", dim = 1, unflattened_size = [2, -1] }"#,
            r#"{ type = "unflatten", dim = 2, unflattened_size = [2, 2, 2, 2, 2, 1] }"#,
            r#"{ type = "chunk", chunks = 5, index = 4, dim = 1 }"#,
            r#"{ type = "slice", dim = 2, start = 4, end = 40 }"#,
            r#"{ type = "select", dim = 4, index = 0 }"#,
            r#"{ type = "select", dim = 1, index = 3 }"#,
            r#"{ type = "mean", dim = [1, 2, 3] }"#,
            r#"{ type = "channel_shuffle", groups = 2 }"#,
            r#"{ type = "pixel_shuffle", upscale_factor = 2 }"#,
            r#"{ type = "pixel_unshuffle", downscale_factor = 3 }"#,
            r#"{ type = "reflection_pad2d", padding = [0, 0, 40, 0] }"#,
            r#"{ type = "glu", dim = 1 }"#,
        ]
    ));
}

#[test]
fn blocks_that_do_not_fit() {
    let on_images = [
        r#"{ type = "class_token" }"#,
        r#"{ type = "conv1d", out_channels = 4, kernel_size = 3 }"#,
        r#"{ type = "prelu", num_parameters = 2 }"#,
        r#""batch_norm1d""#,
    ];
    let on_vectors = [
        r#"{ type = "position_embedding" }"#,
        r#"{ type = "conv1d", out_channels = 4, kernel_size = 3 }"#,
        r#"{ type = "unflatten", unflattened_size = [1, 13] }, { type = "max_pool1d", kernel_size = 20 }"#,
        r#""instance_norm2d""#,
        r#"{ type = "rms_norm", normalized_dims = 2 }"#,
    ];
    insta::assert_snapshot!(
        [all_rendered(images, &on_images), all_rendered(vectors, &on_vectors)].join("\n==========\n")
    );
}
