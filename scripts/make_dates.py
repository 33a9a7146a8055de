"""Makes data/dates: dates as people write them, each with the same date as ISO 8601 has it.

No date of `val.csv` is in `train.csv`, in whatever form. Every run writes the same bytes.
"""

import datetime
import pathlib
import random

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "dates"
FORMS = ["{d} {month} {y}", "{month} {d}, {y}", "{day}, {d} {month} {y}", "{d} {mon} {y}", "{mon} {d} {y}", "{dd}.{mm}.{y}", "the {d}{th} of {month} {y}", "{y}/{mm}/{dd}"]


def written(date, form):
    d = date.day
    th = "th" if 10 < d < 14 else {1: "st", 2: "nd", 3: "rd"}.get(d % 10, "th")
    month, day = f"{date:%B}", f"{date:%A}"
    return form.format(d=d, dd=f"{d:02}", mm=f"{date.month:02}", y=date.year, month=month, mon=month[:3], day=day, th=th)


def main():
    draws = random.Random(5)
    first, last = datetime.date(1950, 1, 1).toordinal(), datetime.date(2049, 12, 31).toordinal()
    dates = [datetime.date.fromordinal(day) for day in draws.sample(range(first, last + 1), 4200)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, some in [("train", dates[:4000]), ("val", dates[4000:])]:
        rows = []
        for date in some:
            text = written(date, draws.choice(FORMS))
            text = f'"{text}"' if "," in text else text
            rows.append(f"{text},{date.isoformat()}\n")
        (FOLDER / f"{name}.csv").write_text("date,iso\n" + "".join(rows))


main()
