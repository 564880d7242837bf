// SPDX-License-Identifier: Apache-2.0
package io.stockade;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What a statement of SQL replied. A value is a {@code Long}, {@code Double}, {@code String}, null,
 * or, where its bytes are no UTF-8, a {@code byte[]}.
 *
 * @param columns the names of the columns
 * @param rows the rows, each with a value for each column
 * @param changes how many rows were changed
 * @param lastInsertRowid the number of the row that was inserted last
 */
public record Rows(List<String> columns, List<List<Object>> rows, long changes,
                   long lastInsertRowid) {
    /**
     * The rows, each by the names of its columns. Columns of one name are told apart as SQLite does
     * it: {@code id}, {@code id:1}.
     *
     * @return one map for each row, in order
     */
    public List<Map<String, Object>> maps() {
        List<String> names = distinct();
        List<Map<String, Object>> maps = new ArrayList<>(rows.size());
        for (List<Object> row : rows) {
            Map<String, Object> map = new LinkedHashMap<>();
            for (int i = 0; i < names.size(); i++) {
                map.put(names.get(i), row.get(i));
            }
            maps.add(map);
        }
        return maps;
    }

    private List<String> distinct() {
        Set<String> names = new LinkedHashSet<>();
        for (String column : columns) {
            String name = column;
            for (int i = 1; !names.add(name); i++) {
                name = column + ":" + i;
            }
        }
        return List.copyOf(names);
    }

    /** From a reply, which is a map of these four. */
    @SuppressWarnings("unchecked")
    static Rows of(Object reply) {
        Map<String, Object> map = (Map<String, Object>) reply;
        List<String> columns = new ArrayList<>();
        for (Object name : (List<Object>) map.get("columns")) {
            columns.add(String.valueOf(name));
        }
        List<List<Object>> rows = new ArrayList<>();
        for (Object row : (List<Object>) map.get("rows")) {
            rows.add((List<Object>) row);
        }
        return new Rows(columns, rows, (Long) map.get("changes"),
                        (Long) map.get("last_insert_rowid"));
    }
}
