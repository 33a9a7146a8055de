//! What a model says of a sample, as text, as JSON and as a row of a table.

use super::cells::{csv, guarded, id_column};
use super::scores::{Places, sigmoid, softmax};
use super::seen::HeadSeen;
use super::tagging::TaggedWords;
use crate::data::table::ColumnValue;
use crate::data::text::Placed;
use crate::data::{DataSpec, target_names};
use crate::graph::Shape;
use crate::graph::op::Task;
use crate::terminal::one_line;
use serde_json::{Value, json};
use std::path::Path;

/// What outputs mean.
pub struct Meaning<'a> {
    /// What the model was trained for.
    pub task: Task,
    /// What its samples look like.
    pub data: &'a DataSpec,
    /// What the numbers of a sample are called, if they have names: quantiles.
    pub quantiles: &'a [String],
    /// How many classes an answer has.
    pub top: usize,
    /// A table has a column for each class, and an object the probability of each by its name.
    pub each_class: bool,
    /// Names in a table are kept from being run as formulas.
    pub guard_formulas: bool,
    /// The column that names the rows of tables, if there is one.
    pub id: Option<String>,
    /// What the outputs of heads mean, which stand after those of the target: of each its name and how many numbers they are.
    pub heads: Vec<(String, usize, Meaning<'a>)>,
}

/// What a model says of one sample.
pub enum Answer {
    /// The likeliest classes, the likeliest first, with their probabilities.
    Classes(Vec<(usize, f64)>),
    /// The class of every position.
    Positions(Vec<usize>, Shape),
    /// A probability for each label.
    Labels(Vec<f64>),
    /// Numbers.
    Values(Vec<f32>),
    /// The words of a sentence with their tags.
    Words(TaggedWords),
    /// A text.
    Text(String),
    /// What the model says of its target, and of each of its heads.
    WithHeads(Box<Answer>, Vec<Answer>),
}

/// The sample that an answer is about.
#[derive(Clone)]
pub struct Of<'a> {
    /// The file that it is in.
    pub file: &'a Path,
    /// Its number there, if that has several.
    pub sample: Option<usize>,
    /// What the row of a table is called, if a column says so.
    pub row: Option<String>,
}

impl<'a> Meaning<'a> {
    /// Whether the answer for a sample has a class, or labels: of the target or of a head.
    pub fn has_a_class(&self) -> bool {
        let own = self.task != Task::Regression && !self.has_positions();
        own || self.heads.iter().any(|(_, _, meaning)| meaning.has_a_class())
    }

    /// The same of a model that has these heads besides.
    pub fn and_of_heads(self, heads: &'a [HeadSeen]) -> Self {
        let of = |head: &'a HeadSeen| {
            let alone =
                Meaning { task: head.task, data: &head.data, quantiles: &[], id: None, heads: Vec::new(), ..self };
            (head.name.clone(), head.outputs(), alone)
        };
        Meaning { heads: heads.iter().map(of).collect(), ..self }
    }

    /// What the output for one sample means.
    pub fn answer(&self, output: &[f32]) -> Answer {
        if self.heads.is_empty() {
            return self.answer_alone(output);
        }
        let of_heads: usize = self.heads.iter().map(|(_, outputs, _)| outputs).sum();
        let (own, mut rest) = output.split_at(output.len() - of_heads);
        let mut heads = Vec::with_capacity(self.heads.len());
        for (_, outputs, meaning) in &self.heads {
            let (of_head, others) = rest.split_at(*outputs);
            heads.push(meaning.answer(of_head));
            rest = others;
        }
        Answer::WithHeads(Box::new(self.answer_alone(own)), heads)
    }

    fn answer_alone(&self, output: &[f32]) -> Answer {
        let positions = self.positions();
        match self.task {
            Task::Classification if positions.rank() > 0 => {
                Answer::Positions(classes_at(output, &positions), positions)
            }
            Task::Classification => {
                let most = if self.each_class { output.len() } else { self.top };
                Answer::Classes(top(softmax(output.iter().copied()), most))
            }
            Task::BinaryClassification => Answer::Labels(output.iter().copied().map(sigmoid).collect()),
            Task::Regression => Answer::Values(output.to_vec()),
        }
    }

    /// What the output for a sentence means.
    pub fn answer_of_words(&self, output: &[f32], sentence: &Placed) -> Answer {
        Answer::Words(TaggedWords::new(sentence, &classes_at(output, &self.positions()), self.data))
    }

    /// Whether the output for one sample, or for a sentence, says something: each class has a probability, and each label and value is a finite number.
    pub fn is_finite(&self, output: &[f32], sentence: Option<&Placed>) -> bool {
        let of_heads: usize = self.heads.iter().map(|(_, outputs, _)| outputs).sum();
        let (own, mut rest) = output.split_at(output.len() - of_heads);
        let heads_are = self.heads.iter().all(|(_, outputs, meaning)| {
            let (of_head, others) = rest.split_at(*outputs);
            rest = others;
            meaning.is_finite(of_head, None)
        });
        heads_are
            && match self.task {
                Task::Classification => {
                    let positions = self.positions();
                    let places = Places::new(own.len(), &positions);
                    // A class may be impossible, but not all of them.
                    let is_usable = |position: usize| {
                        let mut largest = f32::NEG_INFINITY;
                        let known = places.at(position).all(|place| {
                            largest = largest.max(own[place]);
                            !own[place].is_nan()
                        });
                        known && largest.is_finite()
                    };
                    match sentence {
                        // What lies after its words is not looked at.
                        Some(sentence) => sentence.at.iter().flatten().copied().all(is_usable),
                        None => (0..positions.len()).all(is_usable),
                    }
                }
                Task::BinaryClassification | Task::Regression => own.iter().all(|number| number.is_finite()),
            }
    }

    /// The shape of what has a class each in a sample; of rank 0 where a sample has one.
    pub fn positions(&self) -> Shape {
        self.data.target().map_or(Shape::default(), |(_, field)| field.shape.clone())
    }

    /// Whether every sample has a class at each of several positions, which no row of a table has room for.
    pub fn has_positions(&self) -> bool {
        self.task == Task::Classification && self.positions().rank() > 0
    }

    fn label(&self, class: usize) -> String {
        let name = self.data.class_names().and_then(|names| names.get(class).cloned());
        name.unwrap_or_else(|| class.to_string())
    }

    /// The names of so many labels, of which a sample may have several.
    fn labels(&self, number: usize) -> impl Iterator<Item = String> {
        let learnt = self.learnt(number);
        (0..number).map(move |at| learnt.as_ref().map_or_else(|| self.label(at), |names| names[at].clone()))
    }

    /// The columns that were learnt, if so many numbers were.
    fn learnt(&self, numbers: usize) -> Option<Vec<String>> {
        let names = target_names(self.data);
        (names.len() == numbers && self.data.class_names().is_none()).then_some(names)
    }

    /// Shares with their labels, as text shows them.
    fn shares(&self, answer: &Answer) -> Vec<(f64, String)> {
        let with_label = |(class, share): (usize, f64)| (share, one_line(&self.label(class)));
        match answer {
            Answer::Classes(list) => list.iter().copied().map(with_label).collect(),
            Answer::Labels(list) => list.iter().copied().enumerate().map(with_label).collect(),
            Answer::Positions(classes, positions) => {
                let mut counts = vec![0usize; classes.iter().max().map_or(0, |most| most + 1)];
                classes.iter().for_each(|class| counts[*class] += 1);
                let mut most: Vec<usize> = (0..counts.len()).filter(|class| counts[*class] > 0).collect();
                most.sort_by_key(|class| std::cmp::Reverse(counts[*class]));
                let share = |class: usize| (class, counts[class] as f64 / positions.len() as f64);
                most.into_iter().take(self.top).map(share).map(with_label).collect()
            }
            Answer::Values(_) | Answer::Words(_) | Answer::Text(_) | Answer::WithHeads(..) => Vec::new(),
        }
    }

    /// A paragraph: the sample, then a line for each class.
    pub fn paragraph(&self, of: Of, answer: &Answer) -> String {
        format!("{}\n{}", of.name(), self.lines(answer))
    }

    /// The answer for a sample, a line for each class, indented.
    fn lines(&self, answer: &Answer) -> String {
        let mut text = String::new();
        if let Answer::WithHeads(own, heads) = answer {
            text.push_str(&self.lines(own));
            for ((name, _, meaning), answer) in self.heads.iter().zip(heads) {
                text.push_str(&format!("  {}:\n", one_line(name)));
                meaning.lines(answer).lines().for_each(|line| text.push_str(&format!("  {line}\n")));
            }
        }
        if let Answer::Positions(_, positions) = answer {
            text.push_str(&format!("  {} positions\n", positions.len()));
        }
        match answer {
            Answer::Values(values) if !self.quantiles.is_empty() => {
                for (name, value) in self.quantiles.iter().zip(values) {
                    text.push_str(&format!("  {}: {value:?}\n", one_line(name)));
                }
            }
            Answer::Values(values) => text.push_str(&format!("  {values:?}\n")),
            _ => {}
        }
        if let Answer::Words(words) = answer {
            text.push_str(&words.lines());
        }
        if let Answer::Text(answer) = answer {
            answer.lines().for_each(|line| text.push_str(&format!("  {}\n", one_line(line))));
        }
        for (share, label) in self.shares(answer) {
            text.push_str(&format!("  {:>6.2} %  {label}\n", 100.0 * share));
        }
        text
    }

    /// A line, for a list of many samples.
    pub fn line(&self, of: Of, answer: &Answer) -> String {
        format!("{}: {}\n", of.name(), self.in_a_line(answer))
    }

    fn in_a_line(&self, answer: &Answer) -> String {
        match answer {
            Answer::WithHeads(own, heads) => {
                let of_head = |((name, _, meaning), answer): (&(String, usize, Meaning), &Answer)| {
                    format!("; {}: {}", one_line(name), meaning.in_a_line(answer))
                };
                self.in_a_line(own) + &self.heads.iter().zip(heads).map(of_head).collect::<String>()
            }
            Answer::Values(values) => format!("{values:?}"),
            Answer::Words(words) => words.line(),
            Answer::Text(answer) => one_line(answer),
            _ => {
                let shares = self.shares(answer);
                shares
                    .iter()
                    .map(|(share, label)| format!("{:.2} % {label}", 100.0 * share))
                    .collect::<Vec<_>>()
                    .join(", ")
            }
        }
    }

    /// A JSON object.
    pub fn json(&self, of: Of, answer: &Answer) -> Value {
        let mut result = json!({ "file": of.file.to_string_lossy() });
        if let Some(n) = of.sample {
            result["sample"] = n.into();
        }
        if let (Some(name), Some(column)) = (of.row, &self.id) {
            result[id_column(column, [])] = name.into();
        }
        self.write_json(answer, &mut result);
        result
    }

    /// Adds what a model says of a sample to a JSON object.
    pub fn write_json(&self, answer: &Answer, result: &mut Value) {
        match answer {
            Answer::Classes(list) => {
                let one = |(class, p): &(usize, f64)| json!({ "class": class, "label": self.label(*class), "probability": p });
                result["top"] = list.iter().take(self.top).map(one).collect();
                if self.each_class {
                    let by_name = in_order(list).map(|(class, p)| (self.label(class), json!(p)));
                    result["probabilities"] = Value::Object(by_name.collect());
                }
            }
            Answer::Positions(classes, positions) => {
                result["classes"] = match positions.rank() {
                    1 => json!(classes),
                    _ => json!(classes.chunks(positions.last()).collect::<Vec<_>>()),
                };
            }
            Answer::Labels(list) if self.each_class => {
                let by_name = self.labels(list.len()).zip(list).map(|(name, p)| (name, json!(p)));
                result["probabilities"] = Value::Object(by_name.collect());
            }
            Answer::Labels(list) => result["probabilities"] = json!(list),
            Answer::Values(values) => {
                result["values"] = json!(values);
                if !self.quantiles.is_empty() {
                    let named = self.quantiles.iter().zip(values).map(|(name, value)| (name.clone(), json!(value)));
                    result["quantiles"] = Value::Object(named.collect());
                }
            }
            Answer::Words(words) => words.write_json(result),
            Answer::Text(answer) => result["answer"] = json!(answer),
            Answer::WithHeads(own, heads) => {
                self.write_json(own, result);
                let of_head = |((name, _, meaning), answer): (&(String, usize, Meaning), &Answer)| {
                    let mut of_head_json = json!({});
                    meaning.write_json(answer, &mut of_head_json);
                    (name.clone(), of_head_json)
                };
                result["heads"] = Value::Object(self.heads.iter().zip(heads).map(of_head).collect());
            }
        }
    }

    /// The cells of a row of a table.
    pub fn cells(&self, of: Of, answer: &Answer, with_sample: bool) -> Vec<ColumnValue> {
        let mut cells = vec![self.guarded(of.file.to_string_lossy().into_owned())];
        if with_sample {
            let none = || ColumnValue::Missing(Box::new(ColumnValue::Whole(0)));
            cells.push(of.sample.map_or_else(none, |n| ColumnValue::Whole(n as i64)));
        }
        if self.id.is_some() {
            cells.push(self.guarded(of.row.unwrap_or_default()));
        }
        cells.extend(self.said(answer));
        cells
    }

    /// The cells of the answer for a sample.
    pub fn said(&self, answer: &Answer) -> Vec<ColumnValue> {
        let mut cells = Vec::new();
        match answer {
            Answer::WithHeads(own, heads) => {
                cells.extend(self.said(own));
                self.heads.iter().zip(heads).for_each(|((_, _, meaning), answer)| cells.extend(meaning.said(answer)));
            }
            Answer::Classes(list) if self.each_class => {
                cells.extend(list.first().map(|(class, _)| self.guarded(self.label(*class))));
                cells.extend(in_order(list).map(|(_, p)| ColumnValue::Double(p)));
            }
            Answer::Classes(list) => list
                .iter()
                .for_each(|(class, p)| cells.extend([self.guarded(self.label(*class)), ColumnValue::Double(*p)])),
            Answer::Labels(list) => cells.extend(list.iter().copied().map(ColumnValue::Double)),
            Answer::Values(values) => cells.extend(values.iter().copied().map(ColumnValue::Single)),
            Answer::Text(answer) => cells.push(self.guarded(answer.clone())),
            Answer::Positions(..) | Answer::Words(_) => {}
        }
        cells
    }

    /// A row of a table, as a text.
    pub fn row(&self, of: Of, answer: &Answer, with_sample: bool) -> String {
        csv(&self.cells(of, answer, with_sample).iter().map(ColumnValue::text).collect::<Vec<_>>())
    }

    /// A name as a cell: with a `'` before it where a spreadsheet would run it as a formula, if that is asked for.
    fn guarded(&self, name: String) -> ColumnValue {
        ColumnValue::Text(if self.guard_formulas { guarded(name) } else { name })
    }

    /// The table's first row, as a text.
    pub fn header(&self, answer: &Answer, with_sample: bool) -> String {
        csv(&self.columns(answer, with_sample))
    }

    /// The names of a table's columns: what is in rows for answers like this one.
    pub fn columns(&self, answer: &Answer, with_sample: bool) -> Vec<String> {
        let cells = self.columns_of(answer);
        let id = self.id.as_ref().map(|id| id_column(id, cells.iter().map(String::as_str)));
        let first = [Some("file".to_owned()), with_sample.then(|| "sample".to_owned()), id];
        first.into_iter().flatten().chain(cells).collect()
    }

    /// The names of the columns of the answer for a sample.
    pub fn columns_of(&self, answer: &Answer) -> Vec<String> {
        let mut cells = Vec::new();
        match answer {
            Answer::WithHeads(own, heads) => {
                cells.extend(self.columns_of(own));
                for ((name, _, meaning), answer) in self.heads.iter().zip(heads) {
                    cells.extend(meaning.columns_of(answer).into_iter().map(|column| format!("{name}_{column}")));
                }
            }
            Answer::Classes(list) if self.each_class => {
                cells.push("class".into());
                cells.extend((0..list.len()).map(|class| format!("probability_{}", self.label(class))));
            }
            Answer::Classes(list) => (1..=list.len()).for_each(|n| {
                let number = if n == 1 { String::new() } else { format!("_{n}") };
                cells.extend([format!("class{number}"), format!("probability{number}")]);
            }),
            Answer::Labels(list) => {
                cells.extend(self.labels(list.len()).map(|name| format!("probability_{name}")));
            }
            Answer::Values(_) if !self.quantiles.is_empty() => cells.extend(self.quantiles.iter().cloned()),
            Answer::Values(values) if values.len() == 1 => cells.push("value".into()),
            Answer::Values(values) => {
                let learnt = self.learnt(values.len());
                let name = |i: usize| learnt.as_ref().map_or_else(|| (i + 1).to_string(), |names| names[i].clone());
                cells.extend((0..values.len()).map(|i| format!("value_{}", name(i))));
            }
            Answer::Text(_) => cells.push("answer".into()),
            Answer::Positions(..) | Answer::Words(_) => {}
        }
        cells
    }
}

impl Of<'_> {
    /// What the sample is called, for people.
    pub fn name(&self) -> String {
        let number = match (&self.row, self.sample) {
            (Some(name), _) => format!(", {}", one_line(name)),
            (None, Some(n)) => format!(", sample {n}"),
            (None, None) => String::new(),
        };
        format!("{}{number}", one_line(&self.file.display().to_string()))
    }
}

/// The class with the largest logit at each position.
fn classes_at(logits: &[f32], positions: &Shape) -> Vec<usize> {
    let places = Places::new(logits.len(), positions);
    let largest = |position| {
        let classes = places.at(position).map(|place| logits[place]).enumerate();
        classes.reduce(|best, one| if one.1 > best.1 { one } else { best }).map_or(0, |(class, _)| class)
    };
    (0..positions.len()).map(largest).collect()
}

/// All classes in their order, with their probabilities.
fn in_order(list: &[(usize, f64)]) -> impl Iterator<Item = (usize, f64)> {
    let mut all = list.to_vec();
    all.sort_by_key(|(class, _)| *class);
    all.into_iter()
}

/// The `k` largest probabilities with their classes, largest first; of equals the lower class.
fn top(probabilities: impl Iterator<Item = f64>, k: usize) -> Vec<(usize, f64)> {
    let mut list: Vec<(usize, f64)> = probabilities.enumerate().collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    list.truncate(k);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_its_class() {
        let logits = [0.0, 5.0, 1.0, 1.0, 2.0, 0.0];
        // Channels first: (0, 1), (5, 2), (1, 0).
        assert_eq!(classes_at(&logits, &[1, 3].into()), [1, 0, 0]);
        // Channels last: (0, 5), (1, 1), (2, 0).
        assert_eq!(classes_at(&logits, &[3].into()), [1, 0, 0]);
    }

    #[test]
    fn the_likeliest_come_first() {
        let p: Vec<f64> = softmax([1.0, 3.0, 3.0, -1000.0].into_iter()).collect();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let t = top(p.into_iter(), 3);
        assert_eq!(t.iter().map(|(c, _)| *c).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
