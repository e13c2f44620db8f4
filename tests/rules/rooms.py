"""A room (folder) of core includes only the rooms below it, and the modules of core do not include
each other in a circle.

A module is a file with its header: attention/plan.c and plan.h are attention/plan. Prints the rooms
with what each of their modules includes from other rooms, and writes the graph of all modules for
Graphviz if a file is named.

Usage: rooms.py SOURCE_ROOT [GRAPH.dot]
"""
import pathlib
import re
import sys

# Each room may include itself and the rooms listed here.
DOORS = {
    "base": [],
    "runtime": ["base"],
    "attention": ["base", "runtime"],
    "group": ["base", "runtime", "attention"],
    "linear": ["base", "runtime"],
    "layer": ["base", "runtime", "attention", "linear"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def read(core):
    """{module: {modules that it includes}}, where a module is (room, name)."""
    graph = {}
    for path in sorted(core.glob("*/*.[ch]")):
        module = (path.parent.name, path.stem)
        seen = graph.setdefault(module, set())
        for name in INCLUDE.findall(path.read_text()):
            for target in (path.parent / name, core / name):
                if target.is_file():
                    target = target.resolve().relative_to(core.resolve())
                    seen.add((target.parts[0], target.stem))
                    break
        seen.discard(module)
    return graph


def circle(graph):
    """A list of modules that include each other in a circle, in order; empty if there is none."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        path.append(module)
        for target in sorted(graph.get(module, ())):
            found = visit(target)
            if found:
                return found
        path.pop()
        done.add(module)
        return []

    for module in sorted(graph):
        found = visit(module)
        if found:
            return found
    return []


def shut_doors(graph):
    return [
        (module, target)
        for module in sorted(graph)
        for target in sorted(graph[module])
        if target[0] != module[0] and target[0] not in DOORS.get(module[0], [])
    ]


def draw(graph):
    lines = ["digraph core {", "  rankdir = BT;", "  node [shape = box];"]
    for room in DOORS:
        names = " ".join(f'"{room}/{name}"' for r, name in sorted(graph) if r == room)
        lines.append(f'  subgraph cluster_{room} {{ label = "{room}"; {names} }}')
    for module in sorted(graph):
        for target in sorted(graph[module]):
            lines.append(f'  "{"/".join(module)}" -> "{"/".join(target)}";')
    return "\n".join(lines + ["}"]) + "\n"


def main():
    core = pathlib.Path(sys.argv[1]) / "core"
    graph = read(core)
    bad = 0
    # The checks find what they are for.
    if circle({1: {2}, 2: {3}, 3: {2}}) != [2, 3] or circle({1: {2, 3}, 2: {3}, 3: set()}):
        print("circle() does not find circles")
        bad += 1
    found = circle(graph)
    if found:
        print("a circle: " + " -> ".join("/".join(module) for module in found + found[:1]))
        bad += 1
    for module, target in shut_doors(graph):
        print(f"{'/'.join(module)} must not include {'/'.join(target)}")
        bad += 1
    stray = [path.name for path in core.glob("*.[ch]")]
    rooms = {room for room, _ in graph}
    if stray or rooms != set(DOORS):
        print(f"files outside the rooms: {stray}; rooms: {sorted(rooms)}")
        bad += 1
    for room in DOORS:
        outside = sorted({target[0] for module in graph if module[0] == room for target in graph[module]} - {room})
        count = sum(module[0] == room for module in graph)
        print(f"{room:10s} {count:2d} modules, sees {', '.join(outside) or 'nothing else'}")
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(draw(graph))
    return bad != 0 or not graph


sys.exit(main())
