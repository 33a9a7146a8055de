"""How scikit-learn's transformers encode columns, for `src/data/table/tests.rs`.

`tests/golden/table_codecs.json`: training values, other values, and what each transformer makes of both.
"""

import json
from pathlib import Path

import numpy as np
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler


# Words of two letters and of one, digits, `_`, other alphabets, marks, letters that get longer in lower case, a sigma at the end of a word,
# letters in circles, Roman numbers; of 0 to 8 bytes, so that hashes have every kind of tail.
TEXTS = [
    "",
    "a b c",
    "The quick brown fox jumps over the lazy dog: the dog sleeps.",
    "snake_case x1 __ _ 42 7 3.14 don't",
    "Größe ÉCOLE naïve İstanbul ΟΔΟΣ ΣΑΣ ẞ",
    "русский текст 日本語のテキスト 한국어 हिन्दी العربية",
    "e\u0301cole ⒶⒷ ⓐⓑ Ⅷ ⅷⅸ ½¾ ²³ 🙂🙂 🅰🅱",
    "ab abc abcd abcde abcdef abcdefg abcdefgh",
    "ab\u00a0cd\u200bef\u2009gh-ij/kl\tmn\nop",
]


def hashed(texts, **options):
    """The places and the numbers of each text."""
    rows = HashingVectorizer(**options).transform(texts)
    rows.sort_indices()
    cut = lambda numbers, row: numbers[rows.indptr[row] : rows.indptr[row + 1]].tolist()
    return [{"places": cut(rows.indices, row), "numbers": cut(rows.data, row)} for row in range(len(texts))]


def piecewise_linear(train, values, bins):
    """Gorishniy, Rubachev, Babenko 2022, section 3.1.1, equation 1, written out by hand; bins end at quantiles."""
    edges = np.unique(np.quantile(train, np.linspace(0, 1, bins + 1)))
    rows = []
    for value in values:
        row = []
        for at in range(len(edges) - 1):
            part = (value - edges[at]) / (edges[at + 1] - edges[at])
            if part < 0 and at > 0:
                part = 0.0
            if part > 1 and at + 2 < len(edges):
                part = 1.0
            row.append(part)
        rows.append(row)
    return rows


def main():
    random = np.random.default_rng(7)
    train = np.concatenate([random.lognormal(0, 1, 60), np.repeat([0.5, 2.0], 10)]).round(3)
    random.shuffle(train)
    other = np.array([-3.0, 0.0, 0.1, 0.5, 0.777, 1.0, 2.0, 5.5, 1e4])
    column = lambda values: np.asarray(values).reshape(-1, 1)
    both = np.concatenate([train, other])
    quantile = QuantileTransformer(n_quantiles=min(1000, len(train)), output_distribution="normal").fit(column(train))
    log = lambda values: np.sign(values) * np.log1p(np.abs(values))
    missing = np.where(np.arange(len(train)) % 7 == 0, np.nan, train)
    words = [["b"], ["a"], ["c"], ["a"], ["b"], ["a"]]
    seen = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(words)
    frequent = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=2, sparse_output=False).fit(words)
    result = {
        "train": train.tolist(),
        "other": other.tolist(),
        "standardize": StandardScaler().fit(column(train)).transform(column(both)).ravel().tolist(),
        "quantile": quantile.transform(column(both)).ravel().tolist(),
        "log": StandardScaler().fit(column(log(train))).transform(column(log(both))).ravel().tolist(),
        "piecewise_linear": piecewise_linear(train, both, 8),
        "missing": [None if np.isnan(value) else value for value in missing.tolist()],
        "median": SimpleImputer(strategy="median").fit(column(missing)).statistics_[0],
        "mean": SimpleImputer(strategy="mean").fit(column(missing)).statistics_[0],
        "words": [word for [word] in words],
        "one_hot": seen.transform([["a"], ["b"], ["c"], ["d"]]).tolist(),
        # Its places: the most frequent one, and that of all others.
        "infrequent": frequent.transform([["a"], ["b"], ["c"], ["d"]]).tolist(),
    }
    words = sorted({word for text in TEXTS for word in text.split()})
    buckets = FeatureHasher(n_features=1000, input_type="string", alternate_sign=False).transform([[word] for word in words])
    result["hashed"] = {"words": words, "places": buckets.indices.tolist()}
    result["texts"] = {
        "texts": TEXTS,
        "l2": hashed(TEXTS, n_features=64),
        "counts": hashed(TEXTS, n_features=64, norm=None, alternate_sign=False),
        "signs": hashed(TEXTS, n_features=1 << 20, norm=None),
    }
    path = Path(__file__).resolve().parents[2] / "tests" / "golden" / "table_codecs.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
