package client

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func decoded(t *testing.T, text string, to any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// An update is applied where it is known which fields it means; otherwise that is said. The forms
// are those of MongoDB below 5.0 (no truncatedArrays), of 5.0 and 6.0 (no disambiguatedPaths), and
// since 6.1.
func TestUpdateIsAppliedOrSaidToBeUnclear(t *testing.T) {
	const v1, v2, paths = `"removedFields":[]`, `"removedFields":[],"truncatedArrays":[]`, `"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":`
	for name, tc := range map[string]struct{ doc, update, after string }{
		"a field":                  {`{"a":1}`, `{"updatedFields":{"a":2,"b":3},` + v2 + `}`, `{"a":2,"b":3}`},
		"numbers of any size":      {`{"a":1}`, `{"updatedFields":{"a":9007199254740993},` + v1 + `}`, `{"a":9007199254740993}`},
		"4.4 nested":               {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2,"a.c.d":3},` + v1 + `}`, `{"a":{"b":2,"c":{"d":3}}}`},
		"4.4 index":                {`{"l":[1,2]}`, `{"updatedFields":{"l.1":3,"l.3":4},` + v1 + `}`, `{"l":[1,3,null,4]}`},
		"4.4 number as a name":     {`{"m":{"1":1}}`, `{"updatedFields":{"m.1":2},` + v1 + `}`, `{"m":{"1":2}}`},
		"4.4 new document":         {`{}`, `{"updatedFields":{"m.0":2},` + v1 + `}`, `{"m":{"0":2}}`},
		"4.4 element of an array":  {`{"l":[{"n":1},{"n":2}]}`, `{"updatedFields":{"l.1.n":5},"removedFields":["l.0.n"]}`, `{"l":[{},{"n":5}]}`},
		"4.4 removed element":      {`{"l":[1,2]}`, `{"updatedFields":{},"removedFields":["l.0"]}`, `{"l":[null,2]}`},
		"5.0 nested":               {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2},` + v2 + `}`, ``},
		"5.0 removed":              {`{"a":{"b":1}}`, `{"updatedFields":{},"removedFields":["a.b"],"truncatedArrays":[]}`, ``},
		"5.0 truncated":            {`{"a":{"b":[1]}}`, `{"updatedFields":{},"removedFields":[],"truncatedArrays":[{"field":"a.b","newSize":0}]}`, ``},
		"5.0 truncated at the top": {`{"l":[1,2,3]}`, `{"updatedFields":{},"removedFields":[],"truncatedArrays":[{"field":"l","newSize":1}]}`, `{"l":[1]}`},
		"7.0 nested":               {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2},` + paths + `{}}`, `{"a":{"b":2}}`},
		"7.0 a dot in a name":      {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2},` + paths + `{"a.b":["a.b"]}}`, `{"a":{"b":1},"a.b":2}`},
		"7.0 a dot further below":  {`{"a":{}}`, `{"updatedFields":{"a.b.c":2},` + paths + `{"a.b.c":["a","b.c"]}}`, `{"a":{"b.c":2}}`},
		"7.0 a name and a path":    {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2},"removedFields":["a.b"],"truncatedArrays":[],"disambiguatedPaths":{"a.b":["a.b"]}}`, ``},
		"7.0 both set":             {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2,"a.b":3},` + paths + `{"a.b":["a.b"]}}`, ``},
		"7.0 both set, digits":     {`{"a":{"0":1}}`, `{"updatedFields":{"a.0":2,"a.0":3},` + paths + `{"a.0":["a.0"],"a.0":["a","0"]}}`, ``},
		"7.0 nothing set":          {`{"a":1}`, `{"updatedFields":null,"removedFields":["a"],"truncatedArrays":[],"disambiguatedPaths":{}}`, `{}`},
		"7.0 number as a name":     {`{"m":{"1":1}}`, `{"updatedFields":{"m.1":2},` + paths + `{"m.1":["m","1"]}}`, `{"m":{"1":2}}`},
		"7.0 both kinds":           {`{"l":[{"0":1}]}`, `{"updatedFields":{"l.0.0":2},` + paths + `{"l.0.0":["l",0,"0"]}}`, `{"l":[{"0":2}]}`},
		"7.0 index":                {`{"l":[1]}`, `{"updatedFields":{"l.1":2},` + paths + `{}}`, `{"l":[1,2]}`},
		"7.0 truncated and set":    {`{"a.b":[1,2,3]}`, `{"updatedFields":{"a.b.0":9},"removedFields":[],"truncatedArrays":[{"field":"a.b","newSize":2}],"disambiguatedPaths":{"a.b":["a.b"],"a.b.0":["a.b",0]}}`, `{"a.b":[9,2]}`},
		"index of a document":      {`{"l":{"1":1}}`, `{"updatedFields":{"l.1":2},` + paths + `{}}`, ``},
		"name in an array":         {`{"l":[1]}`, `{"updatedFields":{"l.x":2},` + paths + `{}}`, ``},
		"below a number":           {`{"a":1}`, `{"updatedFields":{"a.b":2},` + v1 + `}`, ``},
		"below nothing since 5.0":  {`{}`, `{"updatedFields":{"a.b":2},` + paths + `{}}`, ``},
		"removed and not there":    {`{"a":1}`, `{"updatedFields":{},"removedFields":["b"]}`, ``},
		"truncated and no array":   {`{"a":1}`, `{"updatedFields":{},"removedFields":[],"truncatedArrays":[{"field":"a","newSize":1}]}`, ``},
		"truncated and too short":  {`{"a":[1]}`, `{"updatedFields":{},"removedFields":[],"truncatedArrays":[{"field":"a","newSize":2}]}`, ``},
		"a path that is no path":   {`{"a":1}`, `{"updatedFields":{"a":2},` + paths + `{"a":[true]}}`, ``},
		"a number that is too big": {`{"l":[1]}`, `{"updatedFields":{"l.99999999":2},` + v1 + `}`, ``},
		"a zero in front":          {`{"m":{"01":1}}`, `{"updatedFields":{"m.01":2},` + paths + `{}}`, `{"m":{"01":2}}`},
	} {
		var doc, before, want Document
		var u liveUpdate
		decoded(t, tc.doc, &doc)
		decoded(t, tc.doc, &before)
		decoded(t, tc.update, &u)
		after, sure := u.apply(doc, nil)
		if !reflect.DeepEqual(doc, before) {
			t.Errorf("%s: the document before it has become %v", name, doc)
		}
		if sure != (tc.after != "") {
			t.Errorf("%s: sure %t, %v", name, sure, after)
		}
		if tc.after == "" {
			continue
		}
		if decoded(t, tc.after, &want); !reflect.DeepEqual(after, want) {
			t.Errorf("%s: %v, want %v", name, after, want)
		}
	}
}

// A query of some fields ignores what an update says of others.
func TestUpdateOfOtherFieldsIsIgnored(t *testing.T) {
	for update, sure := range map[string]bool{
		`{"updatedFields":{"x.y":2},"removedFields":["b"],"truncatedArrays":[{"field":"l","newSize":1}],"disambiguatedPaths":{}}`: true,
		`{"updatedFields":{"x.y":2},"removedFields":["b.c"],"truncatedArrays":[]}`:                                                true,
		`{"updatedFields":{"a.y":2},"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":{"a.y":["a.y"]}}`:                true,
		`{"updatedFields":{"a.y":2},"removedFields":[],"truncatedArrays":[]}`:                                                     false,
	} {
		var doc Document
		var u liveUpdate
		decoded(t, `{"_id":1,"a":1}`, &doc)
		decoded(t, update, &u)
		if after, is := u.apply(doc, []string{"a"}); is != sure || sure && !reflect.DeepEqual(after, doc) {
			t.Errorf("%s: sure %t, %v", update, is, after)
		}
	}
}
