#include "cli/view_json.h"

namespace cellar::cli {

namespace {

Answer to_json(const PageView& page) {
    return {{"page", value(page.page)}, {"fill", page.fill},       {"used", page.used},
            {"holders", page.holders},  {"keepers", page.keepers}, {"first_pos", page.first_pos},
            {"last_pos", page.last_pos}};
}

Answer to_json(const Span& span) {
    return {{"page", value(span.page)},
            {"first", span.first},
            {"count", span.count},
            {"delta", span.delta}};
}

Answer to_json(const SequenceView& sequence) {
    return {{"seq", value(sequence.seq)},
            {"pos_min", sequence.pos_min},
            {"pos_max", sequence.pos_max},
            {"cells", sequence.cells}};
}

Answer to_json(const GroupView& group) {
    Answer json = summary(group);
    json["cached_pages"] = group.cached_pages;
    json["reserved_pages"] = group.reserved_pages;
    json["held_cells"] = group.held_cells;
    json["largest_free_run"] = group.largest_free_run;
    json["greatest_pos"] = group.greatest_pos;
    json["pages"] = Answer::array();
    for (const PageView& page : group.live) {
        json["pages"].push_back(to_json(page));
    }
    for (size_t i = 0; i < group.sequences.size(); i++) {
        Answer& spans = json["sequences"][i]["spans"] = Answer::array();
        for (const Span& span : group.sequences[i].spans) {
            spans.push_back(to_json(span));
        }
    }
    return json;
}

}  // namespace

Answer summary(const GroupView& group) {
    Answer sequences = Answer::array();
    for (const SequenceView& sequence : group.sequences) {
        sequences.push_back(to_json(sequence));
    }
    return {{"used_cells", group.used_cells},
            {"free_cells", uint64_t{group.max_pages} * group.page_size - group.used_cells},
            {"used_pages", group.pages - group.free_pages},
            {"free_pages", group.free_pages},
            {"page", group.page_size},
            {"cells", uint64_t{group.pages} * group.page_size},
            {"max_cells", uint64_t{group.max_pages} * group.page_size},
            {"sequences", sequences}};
}

Answer to_json(const CellsView& view) {
    Answer groups = Answer::array();
    for (const GroupView& group : view.groups) {
        groups.push_back(to_json(group));
    }
    return groups;
}

}  // namespace cellar::cli
