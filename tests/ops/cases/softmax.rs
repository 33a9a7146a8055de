use crate::case::Case;
use runner::graph::op::Softmax;

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for shape in [vec![1, 1], vec![3, 10], vec![2, 3, 4, 5], vec![2, 33], vec![7]] {
        list.push(Case::new(format!("softmax of {shape:?}"), Softmax {}, |d| vec![d.normal(shape).wrt()]));
    }
    list.push(Case::new("softmax of large numbers", Softmax {}, |d| {
        vec![d.normal([4, 9]).map(|x| 1000.0 + 5.0 * x).wrt()]
    }));
    list
}
