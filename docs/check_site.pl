# check_site.pl SITE: no dead link inside the site, no formula that MathJax cannot read, no code that an apostrophe has
# ended. Doxygen itself sees none of these.
use strict;
use warnings;
use Cwd "abs_path";
my $site = abs_path(shift);
my $bad  = 0;
sub complain { print STDERR "site: @_\n"; $bad = 1 }
sub slurp { local (@ARGV, $/) = @_; <> }

# Every macro that the copied MathJax knows is a key of one of its tables.
my %known = map { $_ => 1 } qw(begin end left right);
for my $file ("jax/input/TeX/jax.js", map { "extensions/TeX/$_.js" } qw(AMSmath AMSsymbols)) {
  my $js = slurp("$site/mathjax/$file");
  $known{$1} = 1 while $js =~ /[{,]\s*["']?(?:\\\\)?([A-Za-z]+)["']?\s*:/g;
}

my (%text, %anchors, %formulas);
for (glob "$site/*.html") {
  my ($page) = m{([^/]+)$};
  $text{$page} = slurp($_);
  $anchors{$page}{$1} = 1 while $text{$page} =~ /\b(?:id|name)="([^"]+)"/g;
}
for my $page (sort keys %text) {
  my $html = $text{$page};
  complain("$page: an apostrophe ends code near: $1") if $page !~ /_source\.html$/ && $html =~ /(&lsquo;.{0,40})/;
  while ($page !~ /_source\.html$/ && $html =~ /(\\\[(.*?)\\\]|\\\((.*?)\\\))/gs) {
    my $formula = $2 // $3;
    $formulas{$1} = 1;
    while ($formula =~ /\\([A-Za-z]+)/g) { complain("$page: MathJax does not know \\$1 in: $formula") unless $known{$1} }
  }
  while ($html =~ /\bhref="([^"#:]*)(?:#([^"]*))?"/g) {
    my ($to, $anchor) = ($1 eq '' ? $page : $1, $2 // '');
    if (!-e "$site/$to") { complain("$page: dead link to $to") }
    elsif ($anchor ne '' && $text{$to} && !$anchors{$to}{$anchor}) { complain("$page: dead link to $to#$anchor") }
  }
}

# Where a browser is, it has the last word: every formula on one page, none of them an error.
my ($browser) = grep { -x } map { ("$_/chromium", "$_/google-chrome") } split /:/, $ENV{PATH};
if ($browser) {
  my $page = "$site/all_formulas.html";
  my ($head) = $text{"index.html"} =~ m{(<script type="text/x-mathjax-config">.*?MathJax.js"></script>)}s;
  open my $out, '>', $page or die $page;
  print $out "<html><head>$head</head><body>", (map { "<p>$_</p>\n" } sort keys %formulas), "</body></html>";
  close $out;
  my $dom = qx("$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=60000 --dump-dom "file://$page" 2>/dev/null);
  unlink $page;
  my $rendered = () = $dom =~ /class="MathJax"/g;
  complain("the browser renders $rendered formulas of " . keys %formulas) if $rendered != keys %formulas;
  complain("MathJax cannot read: $1") while $dom =~ /class="merror".*?<script type="math[^>]*>(.*?)<\/script>/gs;
}
exit $bad;
