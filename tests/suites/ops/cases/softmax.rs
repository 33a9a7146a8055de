use crate::case::Case;
use runner::graph::op::{LogSoftmax, Softmax};

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for shape in [vec![1, 1], vec![3, 10], vec![2, 3, 4, 5], vec![2, 33], vec![7]] {
        list.push(Case::new(format!("softmax of {shape:?}"), Softmax {}, |d| vec![d.normal(shape.clone()).wrt()]));
        list.push(Case::new(format!("log softmax of {shape:?}"), LogSoftmax {}, |d| vec![d.normal(shape).wrt()]));
    }
    list.push(Case::new("softmax of large numbers", Softmax {}, |d| {
        vec![d.normal([4, 9]).map(|x| 1000.0 + 5.0 * x).wrt()]
    }));
    list.push(Case::new("log softmax of large numbers", LogSoftmax {}, |d| {
        vec![d.normal([4, 9]).map(|x| 1000.0 + 5.0 * x).wrt()]
    }));
    list.push(Case::new("log softmax of a long row", LogSoftmax {}, |d| vec![d.normal([2, 3000]).wrt()]));
    list
}
