lockstepSearch([
{{ range sort site.Pages "Path" -}}
{{ if .File -}}
{{ $page := . -}}
{{ $title := partialCached "title" . .Path -}}
{{ range $i, $part := split (replaceRE `(?m)^## ` "\x1d" .RawContent) "\x1d" -}}
{{ $heading := "" -}}
{{ if $i }}{{ $heading = index (split $part "\n") 0 | $page.RenderString | plainify | htmlUnescape }}{{ end -}}
{{ $anchor := "" -}}
{{ if $i }}{{ $anchor = print "#" (anchorize $heading) }}{{ end -}}
{{ $text := replaceRE `(?m)^#+ .*$|^\x60\x60\x60\w*$|^\|[-| ]+\|$|\]\([^)]*\)|[\x60|*\[]` " " (replaceRE `\A.*\n` "" $part) | replaceRE `\s+` " " -}}
{{ $url := strings.TrimPrefix "/" $page.RelPermalink -}}
{{ if or (eq $url "") (strings.HasSuffix $url "/") }}{{ $url = print $url "index.html" }}{{ end -}}
{{ slice (print $url $anchor) $title $heading (strings.TrimSpace $text) | jsonify (dict "noHTMLEscape" true) }},
{{ end -}}
{{ end -}}
{{ end -}}
])
