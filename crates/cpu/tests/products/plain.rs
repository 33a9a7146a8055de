//! Products in single precision.

use crate::gemm::product::{Product, ProductSpec};
use crate::graph::op::Activation;
use crate::reference::{Sum, Workspace, draw, on_every_level};
use crate::simd::SimdLevel;

/// Runs `spec` on every level and compares with a plain triple loop.
fn check(spec: ProductSpec, with_bias: bool) {
    let ProductSpec { m, n, k, .. } = spec;
    let reach = |rows: usize, columns: usize, s: [usize; 2]| {
        if rows * columns == 0 { 0 } else { (rows - 1) * s[0] + (columns - 1) * s[1] + 1 }
    };
    let a = draw(reach(m, k, spec.a), 1);
    let b = draw(reach(k, n, spec.b), 2);
    let bias = with_bias.then(|| draw(n, 3));
    let mut applied = None;
    let results = on_every_level(|level, pool| {
        let products = [Product::new, Product::keeping].map(|new| new(spec, level, pool.threads()));
        applied = spec.act.filter(|_| products[0].remaining_act().is_none());
        let [c, kept] = products.map(|product| {
            let mut workspace = Workspace::new(product.workspace_bytes());
            let mut c = vec![7.0; (m - 1) * spec.c + n + 3];
            product.run(pool, a[..].into(), b[..].into(), bias.as_deref(), &mut c, workspace.bytes());
            c
        });
        // How rows are shared out changes no sum.
        assert!(c == kept, "{level} {spec:?}");
        c
    });
    for (level, c) in results {
        for i in 0..m {
            for j in 0..n {
                let mut sum = Sum::default();
                for l in 0..k {
                    sum.add(a[i * spec.a[0] + l * spec.a[1]], b[l * spec.b[0] + j * spec.b[1]]);
                }
                if let Some(bias) = &bias {
                    sum.add(bias[j], 1.0);
                }
                let sum = sum.map(|x| match applied {
                    Some(Activation::Relu) => x.max(0.0),
                    Some(Activation::Relu6) => x.clamp(0.0, 6.0),
                    _ => x,
                });
                sum.assert_near(c[i * spec.c + j], &format!("{level} {spec:?} at ({i}, {j})"));
            }
        }
        for i in 1..m {
            assert!(c[(i - 1) * spec.c + n..i * spec.c].iter().all(|&x| x == 7.0), "{level} wrote between rows");
        }
        assert!(c[(m - 1) * spec.c + n..].iter().all(|&x| x == 7.0), "{level} wrote beyond the end");
    }
}

#[test]
fn products_of_all_shapes() {
    let shapes = [
        (1, 1, 1),
        (1, 10, 300),
        (3, 33, 5),
        (14, 32, 16),
        (15, 31, 17),
        (29, 65, 9),
        (130, 10, 40),
        (7, 100, 513),
        (2, 5, 0),
    ];
    for (m, n, k) in shapes {
        // Each operand by rows, by columns, and with gaps.
        check(ProductSpec { m, n, k, a: [k.max(1), 1], b: [n, 1], c: n, act: None }, false);
        check(ProductSpec { m, n, k, a: [k + 3, 1], b: [1, k + 1], c: n + 2, act: Some(Activation::Relu) }, true);
        check(ProductSpec { m, n, k, a: [1, m], b: [n + 5, 1], c: n, act: None }, true);
        check(ProductSpec { m, n, k, a: [2, 2 * m + 1], b: [3 * n, 3], c: n, act: None }, false);
    }
}

#[test]
fn long_sums_are_cut_in_fixed_pieces() {
    check(ProductSpec { m: 9, n: 21, k: 2100, a: [1, 9], b: [21, 1], c: 21, act: None }, true);
    check(ProductSpec { m: 10, n: 10, k: 1500, a: [1500, 1], b: [1, 1500], c: 10, act: None }, true);
}

#[test]
fn several_blocks_of_rows_panels_and_sums() {
    // More tiles than a block holds, more panels than a task, two cache blocks of the sum.
    let (m, n, k) = (560, 70, 330);
    check(ProductSpec { m, n, k, a: [k, 1], b: [1, k], c: n, act: Some(Activation::Relu) }, true);
    check(ProductSpec { m, n, k, a: [1, m], b: [n, 1], c: n, act: None }, false);
    check(ProductSpec { m: 40, n: 300, k, a: [512, 1], b: [1, k], c: 300, act: None }, true);
}

#[test]
fn what_several_tasks_use_is_packed_once() {
    let (m, n, k) = (320, 150, 700);
    check(ProductSpec { m, n, k, a: [k, 1], b: [n, 1], c: n, act: None }, true);
    check(ProductSpec { m, n, k, a: [k, 1], b: [1, k], c: n + 3, act: Some(Activation::Relu) }, false);
    check(ProductSpec { m, n, k, a: [1, m], b: [n, 1], c: n, act: None }, false);
    // A sum so long that it is packed in several goes, and one that is split as well.
    let (m, n, k) = (160, 50, 16_500);
    check(ProductSpec { m, n, k, a: [1, m], b: [n, 1], c: n, act: None }, false);
    let (m, n, k) = (100, 50, 33_000);
    check(ProductSpec { m, n, k, a: [1, m], b: [n, 1], c: n, act: None }, true);
}

#[test]
fn few_rows_are_scalar_products() {
    for (m, n, k) in [(1, 1, 2), (1, 10, 300), (4, 8, 64), (5, 33, 47), (8, 131, 16), (15, 34, 520)] {
        let spec = ProductSpec { m, n, k, a: [k + 1, 1], b: [1, k], c: n + 1, act: Some(Activation::Relu) };
        assert_eq!(Product::new(spec, SimdLevel::detect(), 2).workspace_bytes(), 0);
        check(spec, true);
    }
}

#[test]
fn distant_rows_and_columns_are_copied() {
    for step in [512, 520] {
        check(ProductSpec { m: 133, n: 70, k: 261, a: [1, step], b: [70, 1], c: 70, act: None }, false);
    }
    // Several cache blocks of the sum, and columns without gaps.
    check(ProductSpec { m: 512, n: 40, k: 650, a: [1, 512], b: [40, 1], c: 40, act: None }, false);
    check(ProductSpec { m: 40, n: 40, k: 300, a: [512, 1], b: [1, 300], c: 40, act: Some(Activation::Relu6) }, false);
}
