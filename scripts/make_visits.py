"""Makes data/visits: daily visits of five libraries over two years, from patterns.

Visits depend on the weekday, the season, a slow drift of each library, and holidays. Every run writes the same bytes.
"""

import csv
import datetime
import math
import pathlib
import random

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "visits"
BEGIN = datetime.date(2024, 1, 1)
DAYS = 731
# Of each library: visits on a usual day, what each weekday has of them from Monday on, and how much more there are in winter than in summer.
LIBRARIES = {
    "harbour": (310, [0.8, 1.0, 1.1, 1.0, 1.1, 1.4, 0.6], 0.10),
    "market": (520, [0.9, 1.0, 1.0, 1.0, 1.2, 1.6, 0.3], 0.05),
    "mill": (180, [1.1, 1.1, 1.2, 1.1, 1.0, 0.9, 0.6], 0.20),
    "park": (260, [0.7, 0.8, 1.0, 0.9, 1.1, 1.5, 1.0], -0.15),
    "station": (420, [1.3, 1.2, 1.2, 1.2, 1.2, 0.6, 0.3], 0.02),
}
HOLIDAYS = {(1, 1), (5, 1), (8, 15), (11, 1), (12, 25), (12, 26)}


def main():
    draws = random.Random(20240101)
    rows = []
    for library, (usual, week, winter) in LIBRARIES.items():
        drift = 0.0
        for number in range(DAYS):
            day = BEGIN + datetime.timedelta(days=number)
            holiday = (day.month, day.day) in HOLIDAYS
            drift = 0.97 * drift + draws.gauss(0.0, 0.02)
            season = winter * math.cos(2.0 * math.pi * number / 365.25)
            mean = usual * week[day.weekday()] * (1.0 + season + drift) * (0.25 if holiday else 1.0)
            rows.append([day.isoformat(), library, "yes" if holiday else "no", max(0, round(draws.gauss(mean, 0.06 * mean)))])
    rows.sort()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "visits.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["day", "library", "holiday", "visits"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
