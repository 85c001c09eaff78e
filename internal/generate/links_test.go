package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

var (
	aLink    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	aHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	aFence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	notSlug  = regexp.MustCompile(`[^\pL\pN _-]`)
)

// anchors returns what a link may have behind # for each heading of a page, as GitHub makes it.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, heading := range aHeading.FindAllStringSubmatch(aFence.ReplaceAllString(page, ""), -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading[1])), "")
		all[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return all
}

// brokenLinks returns the links of a page in a folder that lead nowhere, and how many lead to files.
func brokenLinks(folder, page string) (broken []string, files int) {
	for _, link := range aLink.FindAllStringSubmatch(aFence.ReplaceAllString(page, ""), -1) {
		if strings.Contains(link[1], ":") { // of the web
			continue
		}
		path, anchor, hasAnchor := strings.Cut(link[1], "#")
		target := page
		if path != "" {
			files++
			info, err := os.Stat(filepath.Join(folder, path))
			if err != nil {
				broken = append(broken, link[1])
				continue
			}
			if info.IsDir() || filepath.Ext(path) != ".md" {
				continue
			}
			target = string(must.Get(os.ReadFile(filepath.Join(folder, path))))
		}
		if hasAnchor && !anchors(target)[anchor] {
			broken = append(broken, link[1])
		}
	}
	return broken, files
}

// TestLinks: each link of a page to a file or to a heading leads there.
func TestLinks(t *testing.T) {
	links := 0
	must.Do(filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != module && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		broken, files := brokenLinks(filepath.Dir(path), string(must.Get(os.ReadFile(path))))
		for _, link := range broken {
			t.Errorf("%s: %s leads nowhere", path, link)
		}
		links += files
		return nil
	}))
	if links < 100 {
		t.Errorf("%d links to files were seen", links)
	}
	t.Logf("%d links to files", links)
}

// TestBrokenLinks: a file or a heading that is not there is noticed, and what is there is not.
func TestBrokenLinks(t *testing.T) {
	const page = "# The `bench` -v, and more\n\n"
	for _, link := range []string{"links_test.go", ".", "../../README.md", "#the-bench--v-and-more",
		"https://example.com/none", "../../CONTRIBUTING.md#a-release"} {
		if broken, _ := brokenLinks(".", page+"["+link+"]("+link+")"); broken != nil {
			t.Errorf("%q leads nowhere", broken)
		}
	}
	for _, link := range []string{"none.md", "#none", "../../CONTRIBUTING.md#none"} {
		if broken, _ := brokenLinks(".", page+"[x]("+link+")"); len(broken) != 1 {
			t.Errorf("%s: %q", link, broken)
		}
	}
}
