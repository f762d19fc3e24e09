# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far predictions are from what was measured, beside baselines and beside what a repeat predicts."""

import statistics

BASELINES = ["unchanged", "user_ratio", "mean_ratio"]
# Machines whose times differ by less are in no order.
APART = 1.05


def rows(found, series, quantity):
    """One for each program and machine. `quantity`: elapsed or work."""
    for name, prediction in found.items():
        plain = base(prediction, [part[name] for part in series], quantity)
        for one in prediction["machines"]:
            if one["name"] not in series[0][name]:
                continue
            values = [[run[quantity] for run in part[name][one["name"]]] for part in series]
            if None in values[0] + values[1]:
                continue
            first, second = map(statistics.median, values)
            measured = statistics.median(values[0] + values[1])
            predicted = one[f"{quantity}_ns"]
            low, high = one[f"{quantity}_interval_ns"]
            # The baselines are of the elapsed time; their ratios apply to work, too.
            scale = prediction[f"{quantity}_ns"] / prediction["elapsed_ns"] / measured
            yield {
                "program": name,
                "machine": one["name"],
                "measured_ns": measured,
                "series_ns": (first, second),
                "predicted_ns": predicted,
                "interval_ns": [low, high],
                "covered": low <= measured <= high,
                "unmapped_share": one["unmapped_share"],
                "error": predicted / measured - 1,
                "repeat": first / second - 1,
                # As multiples of what the program takes where it was recorded, by measurements of the same time.
                "ratio": predicted / measured / plain["predicted"] * plain["measured"] - 1 if plain else None,
                "ratio_repeat": first / second / plain["first"] * plain["second"] - 1 if plain else None,
                **{name: one["baselines"][f"{name}_ns"] * scale - 1 for name in BASELINES},
            }


def base(prediction, series, quantity):
    """The program where it was recorded, if it was measured there."""
    predicted = [one[f"{quantity}_ns"] for one in prediction["machines"] if one["name"] == "plain"]
    measured = [[run[quantity] for run in part.get("plain", [])] for part in series]
    if not predicted or not all(measured):
        return None
    first, second = map(statistics.median, measured)
    return {"predicted": predicted[0], "first": first, "second": second, "measured": statistics.median(sum(measured, []))}


def by_all(one, other):
    """By all measurements together, one machine is faster than the other."""
    return one["measured_ns"] * APART < other["measured_ns"]


def by_both(one, other):
    """By each of the two series alone. What a repeat does not confirm may be chance."""
    return all(first * APART < second for first, second in zip(one["series_ns"], other["series_ns"]))


def pairs_right(all_rows, value, apart):
    """Of the pairs of machines that a program tells apart, those in the right order, and all."""
    right = wrong = 0
    for one in all_rows:
        for other in all_rows:
            if one["program"] != other["program"] or not apart(one, other):
                continue
            # A baseline that tells no difference is in no order.
            if value(one) * 1.0001 < value(other):
                right += 1
            else:
                wrong += 1
    return right, right + wrong


def table(all_rows):
    ms = lambda ns: f"{ns / 1e6:.1f}"
    lines = [
        "| program | machine | predicted ms | 95 % | measured ms | error | repeat | unchanged | user ratio | mean ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in all_rows:
        low, high = row["interval_ns"]
        errors = " | ".join(f"{row[name]:+.0%}" for name in BASELINES)
        lines.append(
            f"| {row['program']} | {row['machine']} | {ms(row['predicted_ns'])} | {ms(low)} to {ms(high)} | "
            f"{ms(row['measured_ns'])} | {row['error']:+.1%}{'' if row['covered'] else ' (outside)'} | "
            f"{row['repeat']:+.1%} | {errors} |"
        )
    return "\n".join([*lines, "", *summary(all_rows)]) + "\n"


def summary(all_rows):
    others = [row for row in all_rows if row["machine"] != "plain"]
    if not others:
        return ["nothing was predicted"]
    lines = [
        "| | median | worst | pairs of machines in the right order | of those that both series tell apart |",
        "| --- | --- | --- | --- | --- |",
    ]
    names = {"error": "prediction", "repeat": "repeat"}
    for name in ["error", "repeat", *BASELINES]:
        sizes = [abs(row[name]) for row in others]
        # A repeat has no other order than the measurement, and a machine that changes nothing is in none.
        value = lambda row, name=name: row["measured_ns"] * (1 + row[name])
        counts = [f"{right} of {pairs}" for right, pairs in (pairs_right(all_rows, value, by) for by in (by_all, by_both))]
        # A repeat is one of the two series.
        counts[1] = "" if name == "repeat" else counts[1]
        lines.append(
            f"| {names.get(name, name.replace('_', ' '))} | {statistics.median(sizes):.1%} | {max(sizes):.1%} | "
            f"{' | '.join(counts)} |"
        )
    for name, shown in (("ratio", "prediction of the ratio to plain"), ("ratio_repeat", "repeat of that ratio")):
        sizes = [abs(row[name]) for row in others if row[name] is not None]
        if sizes:
            lines.append(f"| {shown} | {statistics.median(sizes):.1%} | {max(sizes):.1%} | | |")
    covered = sum(row["covered"] for row in others)
    return [*lines, "", f"Measured within the 95 % interval: {covered} of {len(others)}."]
